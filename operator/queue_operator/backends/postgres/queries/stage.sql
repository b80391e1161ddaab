-- Makes jobs due whose delay or backoff is over and that have an attempt left; gives their
-- lanes.
-- Parameters: max_rows. Index: ready_stage. Locks: the rows found.
UPDATE ready SET due = true
WHERE job_no = ANY (ARRAY(
    SELECT job_no FROM ready
    WHERE NOT due AND NOT blocked AND eligible_at <= now()
      AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
    ORDER BY eligible_at LIMIT %(max_rows)s
    FOR UPDATE SKIP LOCKED
))
RETURNING lane_id
