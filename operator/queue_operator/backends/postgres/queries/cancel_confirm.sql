-- Workers have seen these cancel requests.
-- Parameters: arrays namespaces (int), ids, tokens (uuid).
-- Index: job_namespace_id_id_key, lease_pkey. Locks: the lease rows, in order of number.
WITH known AS MATERIALIZED (
    SELECT g.token, job.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        AS g(namespace_id, id, token)
    JOIN job ON job.namespace_id = g.namespace_id AND job.id = g.id
    ORDER BY job.job_no
)
UPDATE lease SET cancel_received = true
FROM known WHERE lease.job_no = known.job_no AND lease.token = known.token
