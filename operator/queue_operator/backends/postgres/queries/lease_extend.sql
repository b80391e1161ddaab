-- Renews leases whose token is current, RUNNING and CANCELLING alike, also expired ones that
-- nobody swept. A lease that never expires stays so.
-- Parameters: arrays namespaces (int), ids, tokens (uuid); ttl_s. Gives the places renewed.
-- Index: job_namespace_id_id_key, lease_pkey. Locks: the lease rows, in order of number.
WITH known AS MATERIALIZED (
    SELECT g.n, g.token, job.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        WITH ORDINALITY AS g(namespace_id, id, token, n)
    JOIN job ON job.namespace_id = g.namespace_id AND job.id = g.id
    ORDER BY job.job_no
)
UPDATE lease
SET expires_at = CASE WHEN expires_at IS NULL THEN NULL
                      ELSE now() + make_interval(secs => %(ttl_s)s) END
FROM known WHERE lease.job_no = known.job_no AND lease.token = known.token
RETURNING known.n::int, lease.state, lease.cancel_forced
