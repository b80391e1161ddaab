-- Removes sessions. Parameters: session_ids text[]; replica text, NULL for any: a worker that has
-- moved to another replica since then keeps its row. So does one that was ended, for a while: it
-- must not be opened again.
-- Index: worker_session's primary key. Locks: the rows, in no particular order; a session is
-- closed by the one process that opened it.
DELETE FROM worker_session
WHERE session_id = ANY (%(session_ids)s::text[])
  AND NOT ended
  AND (%(replica)s::text IS NULL OR replica = %(replica)s::text)
