-- The ids that some jobs depend on, in the order in which they were listed.
-- Parameters: children (bigint[]). Index: dependency_pkey. Locks: none.
SELECT g.job_no, edges.ids
FROM unnest(%(children)s::bigint[]) AS g(job_no)
CROSS JOIN LATERAL (
    SELECT array_agg(parent_id ORDER BY place) AS ids
    FROM dependency WHERE dependency.child_no = g.job_no
) edges
