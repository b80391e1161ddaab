-- Lanes numbered above %(after)s. Identity values may become visible out of order, so the
-- caller asks again from a little below the highest it knows.
-- Index: lane_pkey. Locks: none.
SELECT lane.id, namespace.name, job_type.name, lane.priority, lane.tags
FROM lane
JOIN namespace ON namespace.id = lane.namespace_id
JOIN job_type ON job_type.id = lane.type_id
WHERE lane.id > %(after)s
