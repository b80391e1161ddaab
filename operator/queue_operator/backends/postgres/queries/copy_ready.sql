-- The waiting half of jobs; what is not named has the value of a new job by default.
-- Format: binary.
COPY ready (job_no, lane_id, order_time, created_at, due, eligible_at, max_attempts, timeout_s,
            backoff)
FROM STDIN (FORMAT BINARY)
