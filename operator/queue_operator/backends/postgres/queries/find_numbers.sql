-- The numbers of jobs by id. Parameters: namespaces (int[]), ids (text[]).
-- Index: job_namespace_id_id_key. Locks: none.
SELECT g.n::int, found.job_no
FROM unnest(%(namespaces)s::int[], %(ids)s::text[]) WITH ORDINALITY AS g(namespace_id, id, n)
CROSS JOIN LATERAL (
    SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
) found
