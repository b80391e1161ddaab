-- A part of the log of a job: lines behind one of an attempt, and those of later attempts.
-- Parameters: number, version, line, until. Index: the key.
SELECT version, record FROM log_line
WHERE number = :number AND (version, line) > (:version, :line) AND version < :until
ORDER BY version, line
