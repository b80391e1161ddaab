-- Workers have seen these cancel requests; what was not asked for cannot have been seen.
-- Parameters: arrays namespaces (int), ids, tokens (uuid).
-- Trap: as a condition the state would let a plan walk the index of all cancels.
-- Index: job_namespace_id_id_key, lease_pkey. Locks: the lease rows, in order of number.
WITH known AS MATERIALIZED (
    SELECT g.token, found.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        AS g(namespace_id, id, token)
    CROSS JOIN LATERAL (
        SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
    ) found
    ORDER BY found.job_no
), held AS MATERIALIZED (
    SELECT l.job_no FROM known CROSS JOIN LATERAL (
        SELECT job_no FROM lease
        WHERE lease.job_no = known.job_no AND lease.token = known.token
        FOR NO KEY UPDATE
    ) l
)
UPDATE lease SET cancel_received = state IN ({{CANCELLING}})
WHERE job_no = ANY (ARRAY(SELECT job_no FROM held))
