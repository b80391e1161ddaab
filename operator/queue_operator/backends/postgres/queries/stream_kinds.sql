-- What the jobs of lanes have in common. Parameters: lanes (int[]). Locks: none.
-- Index: lane_pkey, namespace_pkey, job_type_pkey.
SELECT found.id, (SELECT name FROM namespace WHERE namespace.id = found.namespace_id),
       (SELECT name FROM job_type WHERE job_type.id = found.type_id), found.tags
FROM unnest(%(lanes)s::int[]) AS wanted(lane_id)
CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = wanted.lane_id LIMIT 1) AS found
