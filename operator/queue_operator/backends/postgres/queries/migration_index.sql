-- Whether an index is whole: no row if there is none, false if building it was broken off.
-- Parameters: name. Locks: none.
SELECT i.indisvalid FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relname = %(name)s AND c.relnamespace = 'queue_operator'::regnamespace
