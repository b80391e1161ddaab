-- Drops the oldest lines of an attempt's log beyond its bounds.
-- Parameters: number, version, max_lines, max_bytes. Index: the key, twice.
DELETE FROM log_line
WHERE number = :number AND version = :version AND line <= (
    SELECT max(line) FROM (
        SELECT line, count(*) OVER newest AS lines, sum(size) OVER newest AS bytes
        FROM log_line WHERE number = :number AND version = :version
        WINDOW newest AS (ORDER BY line DESC)
    ) WHERE lines > :max_lines OR bytes > :max_bytes
)
