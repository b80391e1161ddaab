-- Removes sessions. Parameters: session_ids text[].
-- Index: worker_session's primary key. Locks: the rows, in no particular order; a session is
-- closed by the one process that opened it.
DELETE FROM worker_session WHERE session_id = ANY (%(session_ids)s::text[])
