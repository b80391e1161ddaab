-- Workers of a namespace that were lost, the newest first. Parameters: namespace; max_age_s double
-- precision; limit. Index: lost_worker_newest. Locks: none.
SELECT session_id, namespace, worker_name, host, version, types, capacity, jobs, lost_at
FROM lost_worker
WHERE namespace = %(namespace)s
  AND lost_at >= now() - make_interval(secs => %(max_age_s)s::double precision)
ORDER BY lost_at DESC, session_id
LIMIT %(limit)s
