-- Where a job is now, as far as its history needs it; no row when it does not exist.
-- Parameters: namespace_id, id. Index: job_namespace_id_id_key, then the primary keys of ready,
--   lease, final. Locks: none.
SELECT job.job_no, job.created_at, moving.*
FROM job
CROSS JOIN LATERAL (
    SELECT state, transition, lease_version AS version, attempt AS number, token::text,
           assignee_id, worker_name, host, assigned_at, changed_at, eligible_at
    FROM ready WHERE ready.job_no = job.job_no
    UNION ALL
    SELECT state, transition, lease_version, attempt, token::text,
           assignee_id, worker_name, host, assigned_at, changed_at, eligible_at
    FROM lease WHERE lease.job_no = job.job_no
    UNION ALL
    SELECT state, transition, lease_version, attempt, token::text,
           assignee_id, worker_name, host, assigned_at, changed_at, eligible_at
    FROM final WHERE final.job_no = job.job_no
) AS moving
WHERE job.namespace_id = %(namespace_id)s AND job.id = %(id)s
