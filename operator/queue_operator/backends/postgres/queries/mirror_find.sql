-- The numbers of jobs by namespace and id. Parameters: namespaces (text[]), ids (text[]), of equal
-- length. Index: namespace_name_key, job_namespace_id_id_key. Locks: none.
SELECT found.job_no
FROM unnest(%(namespaces)s::text[], %(ids)s::text[]) AS wanted(namespace, id)
CROSS JOIN LATERAL (SELECT id FROM namespace WHERE name = wanted.namespace LIMIT 1) AS space
CROSS JOIN LATERAL (
    SELECT job_no FROM job WHERE job.namespace_id = space.id AND job.id = wanted.id LIMIT 1
) found
