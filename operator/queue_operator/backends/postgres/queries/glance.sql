-- In which of some ranges a job is due: their numbers, from 1, and the place of the first one.
-- Parameters: lanes (int[]), froms (timestamptz[]) and from_nos (bigint[]), tos and to_nos, both ends
--   included. Index: ready_claim, one entry per range. Locks: none: somebody may be about to take the
--   job.
SELECT g.n::int, r.order_time, r.job_no
FROM unnest(%(lanes)s::int[], %(froms)s::timestamptz[], %(from_nos)s::bigint[],
            %(tos)s::timestamptz[], %(to_nos)s::bigint[])
    WITH ORDINALITY AS g(lane_id, at, no, to_at, to_no, n)
CROSS JOIN LATERAL (
    SELECT order_time, job_no FROM ready
    WHERE due AND lane_id = g.lane_id AND (order_time, job_no) >= (g.at, g.no)
      AND (order_time, job_no) <= (g.to_at, g.to_no)
    ORDER BY order_time, job_no LIMIT 1
) r
