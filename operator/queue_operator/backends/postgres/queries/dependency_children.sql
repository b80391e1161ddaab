-- The jobs that wait for some parents. Gives each one's number and false, and once more with
-- true where it could be locked; the others are in the hands of other transactions.
-- Parameters: parents (bigint[]). Index: dependency_by_parent, ready_pkey.
-- Locks: the waiting children, skipping those that are locked: whoever waited for them here,
--   with the parents' rows in hand, would break the order in which everybody takes locks.
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT edge.child_no AS job_no
    FROM unnest(%(parents)s::bigint[]) AS g(parent_no)
    CROSS JOIN LATERAL (
        SELECT child_no FROM dependency WHERE dependency.parent_no = g.parent_no OFFSET 0
    ) edge
    CROSS JOIN LATERAL (
        SELECT FROM ready WHERE ready.job_no = edge.child_no AND ready.blocked LIMIT 1
    ) child
), locked AS MATERIALIZED (
    SELECT job_no FROM ready
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM waiting)) AND blocked
    ORDER BY job_no FOR UPDATE SKIP LOCKED
)
SELECT job_no, false FROM waiting UNION ALL SELECT job_no, true FROM locked
