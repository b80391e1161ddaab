-- Removes changes that have reached their resource. Parameters: sequences bigint[].
-- Index: mirror_outbox's primary key. Locks: the rows, which only the one active controller
-- deletes.
DELETE FROM mirror_outbox WHERE sequence = ANY (%(sequences)s::bigint[])
