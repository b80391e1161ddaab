-- Running jobs of one assignee, or of a namespace, or all of them; NULL does not filter.
-- Parameters: assignee_id, namespace_id. Index: none, on purpose: the table is as long as there
-- are jobs running. Locks: none.
SELECT lease.job_no
FROM lease
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = lease.job_no LIMIT 1) job
WHERE (%(assignee_id)s::text IS NULL OR lease.assignee_id = %(assignee_id)s)
  AND (%(namespace_id)s::int IS NULL OR job.namespace_id = %(namespace_id)s)
ORDER BY lease.job_no
