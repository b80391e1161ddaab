-- Removes sessions, as session_close does, and keeps that their workers were lost.
-- Parameters: session_ids text[], without repeats; jobs integer[] and ago_s double precision[], as
--   long; replica text, NULL for any.
-- Index: worker_session's primary key. Locks: the rows, in no particular order; a session is
-- closed by the one process that opened it.
WITH gone AS (
    DELETE FROM worker_session
    WHERE session_id = ANY (%(session_ids)s::text[])
      AND NOT ended
      AND (%(replica)s::text IS NULL OR replica = %(replica)s::text)
    RETURNING session_id, namespace, worker_name, host, version, types, capacity
)
INSERT INTO lost_worker
    (session_id, namespace, worker_name, host, version, types, capacity, jobs, lost_at)
SELECT session_id, namespace, worker_name, host, version, types, capacity, told.jobs,
       now() - make_interval(secs => told.ago_s)
FROM unnest(%(session_ids)s::text[], %(jobs)s::integer[], %(ago_s)s::double precision[])
    AS told (session_id, jobs, ago_s)
JOIN gone USING (session_id)
ON CONFLICT (session_id) DO UPDATE SET
    namespace = excluded.namespace,
    worker_name = excluded.worker_name,
    host = excluded.host,
    version = excluded.version,
    types = excluded.types,
    capacity = excluded.capacity,
    jobs = excluded.jobs,
    lost_at = excluded.lost_at
