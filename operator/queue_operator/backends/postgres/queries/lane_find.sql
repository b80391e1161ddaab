-- What some lanes stand for. Parameters: lanes (int[]).
-- Index: the primary keys of lane, namespace and job_type. Locks: none.
SELECT lane.id, namespace.name, job_type.name, lane.priority, lane.tags
FROM unnest(%(lanes)s::int[]) AS given(id)
CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = given.id LIMIT 1) AS lane
JOIN namespace ON namespace.id = lane.namespace_id
JOIN job_type ON job_type.id = lane.type_id
