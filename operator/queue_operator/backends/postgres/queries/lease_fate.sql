-- What became of jobs whose lease could not be renewed.
-- Parameters: arrays namespaces (int), ids, tokens (uuid).
-- Gives: place, state, and whether the token is still the job's newest.
-- Index: job_namespace_id_id_key and the primary keys. Locks: none.
SELECT g.n::int, place.state, coalesce(place.token = g.token, false)
FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
    WITH ORDINALITY AS g(namespace_id, id, token, n)
CROSS JOIN LATERAL (
    SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
) found
CROSS JOIN LATERAL (
    SELECT state, token FROM ready WHERE ready.job_no = found.job_no
    UNION ALL SELECT state, token FROM lease WHERE lease.job_no = found.job_no
    UNION ALL SELECT state, token FROM final WHERE final.job_no = found.job_no
) place
