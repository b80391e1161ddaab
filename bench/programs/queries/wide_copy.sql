-- New jobs; what is not named has the value of a new job by default.
-- Format: binary. Locks: the new rows. Trap: an id that exists ends the transaction.
COPY job (job_no, namespace_id, id, lane_id, payload, content_type, created_at, correlation_id,
          order_time, due, eligible_at, max_attempts, timeout_s, backoff)
FROM STDIN (FORMAT BINARY)
