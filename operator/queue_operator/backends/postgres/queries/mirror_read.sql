-- What the statuses of custom resources tell of jobs, wherever the moving row is.
-- Parameters: job_nos (bigint[]); message_characters, result_bytes (integer): no more is read of
--   either.
-- Index: job_pkey, then the primary keys of suspension, ready, lease, final and progress. Locks: none.
-- Traps: one statement, so one snapshot: a job is never seen in two places. Payloads and whole
--   results are never named here: a page of them is hundreds of megabytes.
SELECT w.job_no, w.id, namespace.name AS namespace, w.created_at, w.cluster_uid, w.resource_name,
       w.generation, m.state, m.transition, m.attempt, m.max_attempts,
       coalesce(nullif(m.worker_name, ''), m.assignee_id) AS worker, m.eligible_at, m.blocked,
       coalesce((SELECT is_on FROM suspension WHERE suspension.job_no = w.job_no LIMIT 1), false)
           AS suspended,
       (SELECT changed_at FROM suspension WHERE suspension.job_no = w.job_no LIMIT 1)
           AS suspension_at,
       m.assigned_at, m.started_at, m.finalized_at,
       m.error ->> 'category' AS error_category, coalesce(m.error ->> 'code', '') AS error_code,
       left(coalesce(nullif(m.error ->> 'message', ''), nullif(m.cancel_reason, ''), m.reason),
            %(message_characters)s::int) AS message,
       substring(m.result FOR %(result_bytes)s::int) AS result_head,
       coalesce(octet_length(m.result), 0) AS result_bytes, m.result_content_type,
       told.percent AS progress_percent, told.message AS progress_message, told.at AS progress_at
FROM unnest(%(job_nos)s::bigint[]) AS wanted(job_no)
CROSS JOIN LATERAL (
    SELECT job_no, namespace_id, id, created_at, cluster_uid, resource_name, generation
    FROM job WHERE job.job_no = wanted.job_no LIMIT 1
) w
JOIN namespace ON namespace.id = w.namespace_id
CROSS JOIN LATERAL (
    SELECT state, transition, attempt, max_attempts, worker_name, assignee_id, eligible_at,
           blocked IS TRUE AS blocked, assigned_at, started_at, NULL::timestamptz AS finalized_at, error,
           ''::text AS cancel_reason, ''::text AS reason, result, result_content_type,
           NULL::bigint AS held
    FROM ready WHERE ready.job_no = w.job_no
    UNION ALL
    SELECT state, transition, attempt, max_attempts, worker_name, assignee_id, eligible_at,
           false, assigned_at, started_at, NULL, error, cancel_reason, '', result,
           result_content_type, (job_no << 16) | (lease_version & 65535)
    FROM lease WHERE lease.job_no = w.job_no
    UNION ALL
    SELECT state, transition, attempt, max_attempts, worker_name, assignee_id, eligible_at,
           false, assigned_at, started_at, finalized_at, error, cancel_reason, reason, result,
           result_content_type, NULL
    FROM final WHERE final.job_no = w.job_no
) m
LEFT JOIN LATERAL (
    SELECT percent, message, at FROM progress WHERE progress.lease = m.held ORDER BY at DESC LIMIT 1
) AS told ON true
