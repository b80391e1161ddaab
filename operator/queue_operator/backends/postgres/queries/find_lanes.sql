-- What the lanes of some jobs stand for, but for the priority: (place from 1, type, tags).
-- A job keeps both for ever. Parameters: namespaces (int[]), ids (text[]).
-- Index: job_namespace_id_id_key, lane_pkey, job_type_pkey. Locks: none.
SELECT g.n::int, job_type.name, lane.tags
FROM unnest(%(namespaces)s::int[], %(ids)s::text[]) WITH ORDINALITY AS g(namespace_id, id, n)
CROSS JOIN LATERAL (
    SELECT lane_id FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
) found
JOIN lane ON lane.id = found.lane_id
JOIN job_type ON job_type.id = lane.type_id
