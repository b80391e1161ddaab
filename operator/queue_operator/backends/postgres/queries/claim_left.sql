-- Part of others: of each range that holds anything its number, how many of its jobs were looked at,
-- and the place of the first that was not taken (NULL: none); aligned, in one row `told_ranges`.
-- Parameters: none; it reads `seen` and `removed`. Index: none.
-- Trap: what was taken is looked up in a set; a join would be a loop over both.
left_over AS (
    SELECT n, count(*)::int AS jobs,
           (array_agg(order_time ORDER BY place) FILTER (WHERE NOT is_taken))[1] AS next,
           (array_agg(job_no ORDER BY place) FILTER (WHERE NOT is_taken))[1] AS next_no
    FROM (
        SELECT n, order_time, job_no, place,
               coalesce(job_no IN (SELECT job_no FROM removed), false) AS is_taken
        FROM seen
    ) AS judged
    GROUP BY n
), told_ranges AS MATERIALIZED (
    SELECT array_agg(n::int) AS numbers, array_agg(jobs) AS looked, array_agg(next) AS nexts,
           array_agg(next_no) AS next_nos
    FROM left_over
)
