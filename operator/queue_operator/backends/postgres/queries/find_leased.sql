-- Running jobs of one assignee, or of a namespace, or all of them; NULL does not filter.
-- Parameters: assignee_id, namespace_id. Index: those of {{standing}};
--   lease_pkey. Locks: none.
-- Trap: an index on all leases of an assignee would cost every claim.
WITH named AS MATERIALIZED (
    SELECT DISTINCT unnest(leases) >> 16 AS job_no
    FROM ({{standing}}) standing
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
