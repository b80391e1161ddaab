-- Makes jobs due whose delay or backoff is over; gives their lanes.
-- Parameters: max_rows. Index: ready_stage. Locks: the rows found.
UPDATE ready SET due = true
WHERE job_no = ANY (ARRAY(
    SELECT job_no FROM ready
    WHERE NOT due AND eligible_at <= now()
      AND NOT (state IN ({{UNKNOWN_RETRY}}) AND max_attempts > 0 AND attempt >= max_attempts)
    ORDER BY eligible_at LIMIT %(max_rows)s
    FOR UPDATE SKIP LOCKED
))
RETURNING lane_id
