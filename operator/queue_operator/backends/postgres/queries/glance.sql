-- Which of some lanes hold a due job, each looked at from a mark on.
-- Parameters: lanes (int[]), marks (timestamptz[]) and mark_numbers (bigint[]).
-- Index: ready_claim, one entry per lane. Locks: none: somebody may be about to take the job.
SELECT l.lane_id
FROM unnest(%(lanes)s::int[], %(marks)s::timestamptz[], %(mark_numbers)s::bigint[])
    AS l(lane_id, mark, mark_no)
CROSS JOIN LATERAL (
    SELECT FROM ready
    WHERE due AND lane_id = l.lane_id AND (order_time, job_no) >= (l.mark, l.mark_no)
    ORDER BY order_time, job_no LIMIT 1
) r
