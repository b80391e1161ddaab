-- Drops the logs of all but the newest attempts of a job that have one.
-- Parameters: number, keep. Index: the key, twice.
DELETE FROM log_line
WHERE number = :number AND version NOT IN (
    SELECT DISTINCT version FROM log_line WHERE number = :number
    ORDER BY version DESC LIMIT :keep
)
