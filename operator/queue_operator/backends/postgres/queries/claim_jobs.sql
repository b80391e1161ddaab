-- Part of others: what is told of the jobs that a claim took, and which of them it is from 1.
-- Parameters: none; it reads `resolved`. Index: job_pkey, parent_result_pkey, checkpoint_pkey.
    SELECT taken.job_no, taken.lane_id, taken.order_time, taken.attempt, taken.token::text,
           taken.assignee_id, taken.timeout_s, job.id, job.payload, job.content_type,
           job.created_at, job.correlation_id, taken.eligible_at, now(), parent.result,
           parent.content_type AS result_content_type, kept.data AS checkpoint, taken.retry_count,
           taken.last_retry_at, coalesce(taken.started_at, now()),
           taken.error ->> 'code' AS error_code, job.traceparent, job.tracestate,
           row_number() OVER () AS nth
    FROM resolved taken
    CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = taken.job_no LIMIT 1) job
    LEFT JOIN LATERAL (
        SELECT * FROM parent_result given
        WHERE job.dependency_mode = 'CHAIN' AND given.job_no = taken.job_no LIMIT 1
    ) parent ON true
    LEFT JOIN LATERAL (
        SELECT data FROM checkpoint
        WHERE taken.checkpointed AND checkpoint.job_no = taken.job_no LIMIT 1
    ) kept ON true
