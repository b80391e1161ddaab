-- What the store counts as running at some assignees. Parameters: assignee_ids text[].
-- Index: none on purpose for the leases, a table as long as there are jobs running; then the
-- primary keys of job, lane, namespace and job_type. No locks.
-- Trap: joined without LATERAL, a plan from when the queue was empty starts from all jobs.
SELECT job.id, namespace.name, lease.assignee_id, lease.token::text, job_type.name, lease.host
FROM lease
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = lease.job_no LIMIT 1) AS job
CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = lease.lane_id LIMIT 1) AS lane
JOIN namespace ON namespace.id = job.namespace_id
JOIN job_type ON job_type.id = lane.type_id
WHERE lease.assignee_id = ANY (%(assignee_ids)s::text[])
