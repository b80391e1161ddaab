-- Renews leases whose token is current, RUNNING and CANCELLING alike, also expired ones that
-- nobody swept. A lease that never expires stays so.
-- Parameters: arrays namespaces (int), ids, tokens (uuid); ttl_s. Gives the places renewed.
-- Index: job_namespace_id_id_key, lease_pkey. Locks: the lease rows, in order of number, against
--   being moved only.
-- Traps: the leases are not written: new versions of a row would be walked by each heartbeat while
--   they cannot be removed. Who takes a lease back has to lock it first, and to look for renewals
--   after that: the lock is what makes this answer true. A row names a thousand leases at most.
WITH known AS MATERIALIZED (
    SELECT g.n, g.token, found.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        WITH ORDINALITY AS g(namespace_id, id, token, n)
    CROSS JOIN LATERAL (
        SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
    ) found
    ORDER BY found.job_no
), held AS MATERIALIZED (
    SELECT known.n, l.* FROM known CROSS JOIN LATERAL (
        SELECT job_no, lease_version, state, cancel_forced, assignee_id,
               expires_at IS NOT NULL AS expires
        FROM lease
        WHERE lease.job_no = known.job_no AND lease.token = known.token
        FOR KEY SHARE
    ) l
), renewed AS (
    INSERT INTO lease_check (kind, look_at, leases, assignees)
    SELECT 'RENEWAL', now() + make_interval(secs => %(ttl_s)s),
           array_agg((job_no << 16) | (lease_version & 65535)),
           array_agg(DISTINCT hashtext(assignee_id))
    FROM held WHERE expires GROUP BY n / 1000
)
SELECT n::int, state, cancel_forced FROM held
