-- (state, jobs), by reading every row.
SELECT state, sum(jobs)::bigint
FROM (
    SELECT state, count(*) AS jobs FROM queue_operator.ready GROUP BY state
    UNION ALL
    SELECT state, count(*) FROM queue_operator.lease GROUP BY state
    UNION ALL
    SELECT state, count(*) FROM queue_operator.final GROUP BY state
) AS counted
GROUP BY state
