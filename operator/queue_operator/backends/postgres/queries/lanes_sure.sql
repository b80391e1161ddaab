-- The time of the transaction, and whether lanes are sure in it.
-- Parameters: those of {{sure}}. Index, locks: none.
SELECT now(), {{sure}}
