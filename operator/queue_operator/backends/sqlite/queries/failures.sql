-- A page of failed jobs, newest failure first. Parameters: after_at and after_number, the place
-- at which the page before ended; failed_after, failed_before (exclusive); max_rows; those of
-- search_condition.sql. Index: job_failed.
SELECT * FROM job
WHERE state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) AND category IS NOT NULL
  AND failed_at > :failed_after AND failed_at < :failed_before
  AND (failed_at, number) < (:after_at, :after_number) AND {condition}
ORDER BY failed_at DESC, number DESC LIMIT :max_rows
