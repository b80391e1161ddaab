-- The parents of some spawned children, if the given tokens are current, and what is known of the
-- children.
-- Parameters, aligned by position: namespaces (int[]), parents (text[]), tokens (uuid[]), ids
--   (text[], of the children). Gives the place, the number of the parent, its state, its
--   correlation id and its depth (0: spawned by nobody), and which job the child was spawned by
--   (NULL: not stored, or by nobody).
-- Index: job_namespace_id_id_key; the primary keys of lease, ready and spawned.
-- Locks: none: `spawn_fence.sql` looks again.
SELECT g.n::int, parent.job_no, held.state, parent.correlation_id,
       coalesce((SELECT depth FROM spawned WHERE spawned.child_no = parent.job_no LIMIT 1), 0),
       child.parent_id
FROM unnest(%(namespaces)s::int[], %(parents)s::text[], %(tokens)s::uuid[], %(ids)s::text[])
    WITH ORDINALITY AS g(namespace_id, parent_id, token, id, n)
CROSS JOIN LATERAL (
    SELECT job_no, correlation_id FROM job
    WHERE job.namespace_id = g.namespace_id AND job.id = g.parent_id LIMIT 1
) parent
CROSS JOIN LATERAL (
    SELECT state FROM lease WHERE lease.job_no = parent.job_no AND lease.token = g.token
    UNION ALL
    SELECT state FROM ready WHERE ready.job_no = parent.job_no AND ready.token = g.token
        AND ready.state IN ({{UNKNOWN_RETRY}})
) held
LEFT JOIN LATERAL (
    SELECT spawned.parent_id FROM job stored
    CROSS JOIN LATERAL (
        SELECT * FROM spawned WHERE spawned.child_no = stored.job_no LIMIT 1
    ) spawned
    WHERE stored.namespace_id = g.namespace_id AND stored.id = g.id LIMIT 1
) child ON true
