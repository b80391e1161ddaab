-- Renews leases whose token is current, RUNNING and CANCELLING alike, also expired ones that
-- nobody swept. A lease that never expires stays so.
-- Parameters: arrays namespaces (int), ids, tokens (uuid); ttl_s. Gives the places renewed.
-- Index: job_namespace_id_id_key, lease_pkey. Locks: the lease rows, in order of number.
WITH known AS MATERIALIZED (
    SELECT g.n, g.token, found.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        WITH ORDINALITY AS g(namespace_id, id, token, n)
    CROSS JOIN LATERAL (
        SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
    ) found
    ORDER BY found.job_no
), held AS MATERIALIZED (
    SELECT known.n, l.job_no, l.state, l.cancel_forced
    FROM known CROSS JOIN LATERAL (
        SELECT job_no, state, cancel_forced FROM lease
        WHERE lease.job_no = known.job_no AND lease.token = known.token
        FOR NO KEY UPDATE
    ) l
), renewed AS (
    UPDATE lease SET expires_at = now() + make_interval(secs => %(ttl_s)s)
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM held)) AND expires_at IS NOT NULL
)
SELECT n::int, state, cancel_forced FROM held
