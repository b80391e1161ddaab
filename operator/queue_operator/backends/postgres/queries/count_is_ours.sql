-- Whether the counts are as of a snapshot of this database: not so in a copy that was restored from a
-- dump, in which the row was not written by the transaction that it names. No parameters.
-- Index: count_progress_pkey, from its end. Locks: none.
SELECT xmin = xid::xid FROM count_progress ORDER BY version DESC LIMIT 1
