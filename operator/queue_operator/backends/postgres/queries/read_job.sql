-- Whole records, wherever the moving row is.
-- Parameters: job_nos (bigint[]) or, if that is NULL, namespace_id and ids (text[]); whole:
--   whether payload and result are read, which may be large.
-- Index: job_pkey or job_namespace_id_id_key, then the primary keys of ready, lease, progress, final;
--   idempotency_by_job, spawned_pkey, callback_pkey, suspension_pkey, and for jobs with parents
--   dependency_pkey.
-- Locks: none. Traps: one statement, so one snapshot: a job is never seen in two places.
WITH wanted AS MATERIALIZED (
    SELECT found.* FROM unnest(%(job_nos)s::bigint[]) AS w(job_no)
    CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = w.job_no LIMIT 1) found
    UNION ALL
    SELECT found.* FROM unnest(%(ids)s::text[]) AS w(id)
    CROSS JOIN LATERAL (
        SELECT * FROM job WHERE job.namespace_id = %(namespace_id)s AND job.id = w.id LIMIT 1
    ) found
)
SELECT w.job_no, w.id, namespace.name AS namespace, job_type.name AS type, lane.priority,
       lane.tags, CASE WHEN %(whole)s::bool THEN w.payload ELSE '' END AS payload,
       w.content_type, w.created_at, w.correlation_id, w.cluster_uid,
       w.resource_name, w.generation, w.dependency_mode, w.traceparent, w.tracestate,
       coalesce((SELECT key FROM idempotency WHERE idempotency.job_no = w.job_no LIMIT 1), '')
           AS idempotency_key,
       coalesce((SELECT parent_id FROM spawned WHERE spawned.child_no = w.job_no LIMIT 1), '')
           AS spawned_by,
       coalesce((SELECT depth FROM spawned WHERE spawned.child_no = w.job_no LIMIT 1), 0)
           AS spawn_depth,
       coalesce((SELECT url FROM callback WHERE callback.job_no = w.job_no LIMIT 1), '')
           AS callback_url,
       coalesce((SELECT is_on FROM suspension WHERE suspension.job_no = w.job_no LIMIT 1), false)
           AS suspended,
       (SELECT changed_at FROM suspension WHERE suspension.job_no = w.job_no LIMIT 1)
           AS suspension_at,
       CASE WHEN w.dependency_mode IS NOT NULL THEN ARRAY(
           SELECT parent_id FROM dependency WHERE dependency.child_no = w.job_no ORDER BY place
       ) END AS depends_on, m.*
FROM wanted w
JOIN lane ON lane.id = w.lane_id
JOIN namespace ON namespace.id = lane.namespace_id
JOIN job_type ON job_type.id = lane.type_id
CROSS JOIN LATERAL (
    SELECT state, eligible_at, attempt, lease_version, transition, retry_count,
           failure_count, max_attempts, timeout_s, backoff, last_retry_at, assignee_id,
           worker_name, host, assigned_at, started_at, error, failed_at, changed_at,
           CASE WHEN %(whole)s::bool THEN result END AS result, result_content_type,
           blocked IS TRUE AS blocked,
           NULL::timestamptz AS finalized_at, ''::text AS reason, ''::text AS cancel_reason,
           NULL::int AS progress_percent,
           NULL::text AS progress_message, NULL::timestamptz AS progress_at
    FROM ready WHERE ready.job_no = w.job_no
    UNION ALL
    SELECT state, eligible_at, attempt, lease_version, transition, retry_count,
           failure_count, max_attempts, timeout_s, backoff, last_retry_at, assignee_id,
           worker_name, host, assigned_at, started_at, error, failed_at, changed_at,
           CASE WHEN %(whole)s::bool THEN result END, result_content_type, false,
           NULL, '', cancel_reason, reported.percent, reported.message, reported.at
    FROM lease
    LEFT JOIN LATERAL (
        SELECT percent, message, at FROM progress
        WHERE progress.lease = (lease.job_no << 16) | (lease.lease_version & 65535)
        ORDER BY at DESC LIMIT 1
    ) reported ON true
    WHERE lease.job_no = w.job_no
    UNION ALL
    SELECT state, eligible_at, attempt, lease_version, transition, retry_count,
           failure_count, max_attempts, timeout_s, backoff, last_retry_at, assignee_id,
           worker_name, host, assigned_at, started_at, error, failed_at, changed_at,
           CASE WHEN %(whole)s::bool THEN result END, result_content_type, false,
           finalized_at, reason, cancel_reason, NULL, NULL, NULL
    FROM final WHERE final.job_no = w.job_no
) m
