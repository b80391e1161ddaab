-- What the store counts as running at some assignees. Parameters: assignee_ids text[].
-- Index: those of {{standing}}; the primary keys of lease, job, lane, namespace and job_type.
-- Locks: none. Joined without LATERAL, a plan from when the queue was empty starts from all jobs.
-- Trap: an index on all leases of an assignee would cost every claim.
WITH named AS MATERIALIZED (
    SELECT DISTINCT unnest(leases) >> 16 AS job_no
    FROM ({{standing}}) standing
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
