-- Pauses a namespace, or a type of jobs in one; gives the pause. One that is there stays as old as
-- it is. Parameters: namespace, type ('': all), reason, paused_by. Index: pause_pkey.
-- Locks: the row.
INSERT INTO pause (namespace, type, reason, paused_by)
VALUES (%(namespace)s, %(type)s, %(reason)s, %(paused_by)s)
ON CONFLICT (namespace, type)
DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by
RETURNING namespace, type, reason, paused_by, since
