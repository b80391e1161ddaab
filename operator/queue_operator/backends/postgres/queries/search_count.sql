-- How many jobs a source of a search has, counted no further than a bound.
-- Parameters: those of the source, and bound.
SELECT count(*)::int FROM (
    SELECT FROM ({source}) AS found (stream, at, job_no, created_at, matched, is_last)
    WHERE found.matched
    LIMIT %(bound)s
) AS counted
