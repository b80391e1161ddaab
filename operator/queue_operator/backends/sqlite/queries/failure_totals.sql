-- How the failed jobs that match spread. Parameters: those of search_condition.sql. Index:
-- job_failed, a range.
SELECT type, category, code, count(*) FROM job
WHERE state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) AND category IS NOT NULL AND {condition}
GROUP BY type, category, code
