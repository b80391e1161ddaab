-- Lanes numbered above %(after)s, and what is paused, as rows without a number. Identity values may
-- become visible out of order, so the caller asks again from a little below the highest it knows.
-- Index: lane_pkey; the pauses are read whole. Locks: none.
SELECT lane.id, namespace.name, job_type.name, lane.priority, lane.tags
FROM lane
JOIN namespace ON namespace.id = lane.namespace_id
JOIN job_type ON job_type.id = lane.type_id
WHERE lane.id > %(after)s
UNION ALL
SELECT NULL, pause.namespace, pause.type, NULL, NULL FROM pause
