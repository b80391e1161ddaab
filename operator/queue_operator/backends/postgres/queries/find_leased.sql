-- Running jobs of one assignee, or of a namespace, or all of them; NULL does not filter.
-- Parameters: assignee_id, namespace_id. Index: sweep_pkey, its end; lease_check_due and
--   lease_check_fresh; lease_pkey. Locks: none.
-- Traps: an index on all leases of an assignee would cost every claim, and the table itself may be
--   full of dead rows: `lease_check` names each lease there is, from the sweeper's mark on, or in a
--   row that its last snapshot did not see. It names ended ones too, and an assignee by a hash.
--   OFFSET 0 keeps a plan from when there were few from starting with all of it.
WITH named AS MATERIALIZED (
    SELECT DISTINCT unnest(leases) >> 16 AS job_no
    FROM (
        SELECT checked.* FROM (
            SELECT kinds, marks FROM sweep ORDER BY number DESC LIMIT 1
        ) last
        CROSS JOIN unnest(ARRAY['CLAIM', 'RENEWAL', 'HELD']) AS k(kind)
        CROSS JOIN LATERAL (
            SELECT leases, assignees FROM lease_check
            WHERE lease_check.kind = k.kind
              AND look_at >= coalesce(marks[array_position(kinds, k.kind)], '-infinity')
            OFFSET 0
        ) checked
        UNION ALL
        SELECT leases, assignees FROM (
            SELECT * FROM lease_check
            WHERE xid >= (SELECT pg_snapshot_xmax(seen) FROM sweep ORDER BY number DESC LIMIT 1)
            UNION ALL
            SELECT * FROM lease_check
            WHERE xid = ANY (ARRAY(
                SELECT pg_snapshot_xip(seen)
                FROM (SELECT seen FROM sweep ORDER BY number DESC LIMIT 1) last))
            OFFSET 0
        ) fresh
        WHERE kind IN ('CLAIM', 'RENEWAL', 'HELD')
    ) standing
    WHERE %(assignee_id)s::text IS NULL OR assignees IS NULL
       OR hashtext(%(assignee_id)s) = ANY (assignees)
), held AS MATERIALIZED (
    SELECT * FROM lease WHERE job_no = ANY (ARRAY(SELECT job_no FROM named))
)
SELECT held.job_no
FROM held
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = held.job_no LIMIT 1) job
WHERE (%(assignee_id)s::text IS NULL OR held.assignee_id = %(assignee_id)s)
  AND (%(namespace_id)s::int IS NULL OR job.namespace_id = %(namespace_id)s)
ORDER BY held.job_no
