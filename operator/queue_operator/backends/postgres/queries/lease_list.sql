-- What the store counts as running at some assignees. Parameters: assignee_ids text[].
-- Index: sweep_pkey, its end; lease_check_due and lease_check_fresh; the primary keys of lease,
--   job, lane, namespace and job_type. Locks: none.
-- Traps: an index on all leases of an assignee would cost every claim, and the table itself may be
--   full of dead rows: `lease_check` names each lease there is, from the sweeper's mark on, or in a
--   row that its last snapshot did not see. It names ended ones too, and an assignee by a hash.
--   OFFSET 0 keeps a plan from when there were few from starting with all of it.
--   Joined without LATERAL, a plan from when the queue was empty starts from all jobs.
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
    WHERE assignees IS NULL OR assignees && ARRAY(
        SELECT hashtext(a) FROM unnest(%(assignee_ids)s::text[]) AS a)
), held AS MATERIALIZED (
    SELECT * FROM lease WHERE job_no = ANY (ARRAY(SELECT job_no FROM named))
)
SELECT job.id, namespace.name, held.assignee_id, held.token::text, job_type.name, held.host
FROM held
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = held.job_no LIMIT 1) AS job
CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = held.lane_id LIMIT 1) AS lane
JOIN namespace ON namespace.id = job.namespace_id
JOIN job_type ON job_type.id = lane.type_id
WHERE held.assignee_id = ANY (%(assignee_ids)s::text[])
