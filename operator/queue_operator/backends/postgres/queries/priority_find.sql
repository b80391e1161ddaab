-- Jobs that have not ended, with what their lanes are made of, and whether they run.
-- Parameters: namespaces (text[]), ids (text[]), of equal length.
-- Index: namespace_name_key, job_namespace_id_id_key, lane_pkey, then ready's and lease's primary
--   keys. Locks: none.
SELECT wanted.namespace, wanted.id, found.job_no, job_type.name AS type, lane.tags, lane.priority,
       standing.runs
FROM unnest(%(namespaces)s::text[], %(ids)s::text[]) AS wanted(namespace, id)
CROSS JOIN LATERAL (SELECT id FROM namespace WHERE name = wanted.namespace LIMIT 1) AS space
CROSS JOIN LATERAL (
    SELECT job_no, lane_id FROM job
    WHERE job.namespace_id = space.id AND job.id = wanted.id LIMIT 1
) AS found
JOIN lane ON lane.id = found.lane_id
JOIN job_type ON job_type.id = lane.type_id
CROSS JOIN LATERAL (
    SELECT false AS runs FROM ready WHERE ready.job_no = found.job_no
    UNION ALL
    SELECT true FROM lease WHERE lease.job_no = found.job_no
) AS standing
