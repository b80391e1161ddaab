-- What some jobs wait for: all their edges, in the order in which the parents were listed.
-- Parameters: children (bigint[]). Index: dependency_pkey, job_pkey.
-- Locks: none; the caller has locked the children's rows before, in a statement of its own, so
--   that this one sees what those wrote who had them until then.
SELECT edge.child_no, edge.parent_no, edge.parent_id, edge.outcome, job.dependency_mode
FROM unnest(%(children)s::bigint[]) AS g(job_no)
CROSS JOIN LATERAL (
    SELECT dependency_mode FROM job WHERE job.job_no = g.job_no LIMIT 1
) job
CROSS JOIN LATERAL (
    SELECT * FROM dependency WHERE dependency.child_no = g.job_no ORDER BY place OFFSET 0
) edge
ORDER BY edge.child_no, edge.place
