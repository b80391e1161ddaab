-- Cuts the window into {parts} parts of equal weight; a row weighs as much as it has jobs.
-- Equal steps of seq would leave most parts empty after a gap, and one with everything.
-- Index: job_event (xid); for a first read the whole table is scanned once.
WITH wanted AS (
    SELECT seq, greatest(cardinality(job_nos), 1) AS jobs, schema_version
    FROM queue_operator.job_event
    WHERE {window}
),
counted AS (
    SELECT
        seq,
        jobs,
        schema_version,
        sum(jobs) OVER (ORDER BY seq) AS upto,
        sum(jobs) OVER () AS total
    FROM wanted
)
SELECT max(seq), sum(jobs)::bigint, max(schema_version)
FROM counted
GROUP BY (upto - 1) * {parts} / total
ORDER BY 1
