-- Running jobs of one assignee, or of a namespace, or all of them; NULL does not filter.
-- Parameters: assignee_id, namespace_id. Index: lease_by_assignee for an assignee, else none:
-- the table is as long as there are jobs running. Locks: none.
SELECT lease.job_no, lease.token::text
FROM lease JOIN job ON job.job_no = lease.job_no
WHERE (%(assignee_id)s::text IS NULL OR lease.assignee_id = %(assignee_id)s)
  AND (%(namespace_id)s::int IS NULL OR job.namespace_id = %(namespace_id)s)
ORDER BY lease.job_no
