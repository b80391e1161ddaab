-- Open sessions. Parameters: max_age_s double precision, NULL for all.
-- No index: the table has a row per connected worker process.
SELECT session_id, namespace, worker_name, pod_uid, host, replica, tags, types, capacity, busy,
       draining, version, connection, wanted_capacity, wanted_tags, wanted_drain, order_number,
       followed, shown, connected_at, heartbeat_at
FROM worker_session
WHERE NOT ended
  AND (%(max_age_s)s::double precision IS NULL
       OR heartbeat_at >= now() - make_interval(secs => %(max_age_s)s::double precision))
ORDER BY namespace, worker_name, connected_at, session_id
