-- When the error of a job was told, which a manual retry does not change.
ALTER TABLE job ADD COLUMN failed_at INTEGER;
UPDATE job SET failed_at = updated_at,
    record = json_set(record, '$.job.failed_at', json_extract(record, '$.job.updated_at'))
WHERE category IS NOT NULL;
DROP INDEX job_failed;
CREATE INDEX job_failed ON job (namespace, failed_at, number)
    WHERE state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) AND category IS NOT NULL;
