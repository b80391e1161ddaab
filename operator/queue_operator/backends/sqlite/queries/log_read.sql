-- The log of a job. Parameters: number. Index: the key.
SELECT version, record FROM log_line WHERE number = :number ORDER BY version, line
