-- What waits in some pages of `ready`: how many pages there are in all; aligned, the lanes in which a
-- job is due and the first and the last place of such jobs; then a job that should have become due
-- a minute ago, the earliest, and when.
-- Parameters: from_page and to_page, text like '(7,0)', the latter not included.
-- Index: none; the pages are read, whatever is in them. Locks: none.
-- Trap: a job without an attempt left is never made due, but swept.
WITH slice AS MATERIALIZED (
    SELECT job_no, lane_id, order_time, eligible_at, due
    FROM ready
    WHERE ctid >= %(from_page)s::tid AND ctid < %(to_page)s::tid
      AND (due OR (NOT blocked AND eligible_at < now() - interval '1 minute'
                   AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE))
), places AS MATERIALIZED (
    SELECT lane_id, array_agg(order_time ORDER BY order_time, job_no) AS times,
           array_agg(job_no ORDER BY order_time, job_no) AS numbers
    FROM slice WHERE due GROUP BY lane_id
), late AS MATERIALIZED (
    SELECT job_no, eligible_at FROM slice WHERE NOT due ORDER BY eligible_at LIMIT 1
)
SELECT pg_relation_size('ready') / current_setting('block_size')::int,
       ARRAY(SELECT lane_id FROM places ORDER BY lane_id),
       ARRAY(SELECT times[1] FROM places ORDER BY lane_id),
       ARRAY(SELECT numbers[1] FROM places ORDER BY lane_id),
       ARRAY(SELECT times[cardinality(times)] FROM places ORDER BY lane_id),
       ARRAY(SELECT numbers[cardinality(numbers)] FROM places ORDER BY lane_id),
       (SELECT job_no FROM late), (SELECT eligible_at FROM late)
