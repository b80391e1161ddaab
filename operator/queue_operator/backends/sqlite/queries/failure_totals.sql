-- How the failed jobs that match spread. Parameters: failed_after, failed_before (exclusive);
-- those of search_condition.sql. Index: job_failed, a range.
SELECT type, category, code, count(*) FROM job
WHERE state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) AND category IS NOT NULL
  AND failed_at > :failed_after AND failed_at < :failed_before AND {condition}
GROUP BY type, category, code
