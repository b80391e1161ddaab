-- Jobs of some assignees that were asked to stop. Parameters: assignee_ids text[].
-- Index: lease_cancelling, then job's and namespace's primary keys. No locks.
-- Trap: joined without LATERAL, a plan from when the queue was empty starts from all jobs.
SELECT job.id, namespace.name, lease.assignee_id, lease.token, lease.cancel_forced,
       lease.cancel_reason
FROM lease
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = lease.job_no LIMIT 1) AS job
JOIN namespace ON namespace.id = job.namespace_id
WHERE lease.assignee_id = ANY (%(assignee_ids)s::text[]) AND lease.state IN ({{CANCELLING}})
ORDER BY lease.cancel_requested_at, lease.job_no
