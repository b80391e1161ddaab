-- A page of failed jobs, newest failure first. Parameters: after_at and after_number, the place
-- at which the page before ended; max_rows; those of search_condition.sql. Index: job_failed.
SELECT * FROM job
WHERE state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) AND category IS NOT NULL
  AND (updated_at, number) < (:after_at, :after_number) AND {condition}
ORDER BY updated_at DESC, number DESC LIMIT :max_rows
