-- Jobs of some lanes that are due and wait since they were submitted, in the order of their
-- creation, which is also that of their last change.
-- Parameters, words and answer: as search_jobs.sql; bonuses (float8[]): seconds that the lane's
--   priority makes its jobs count older. Index: ready_claim.
-- Traps: the order of a claim is that of creation only among these rows; what lies between them
--   is found by search_aside.sql. A place is told as a time of creation.
WITH streams AS MATERIALIZED (
    SELECT s.lane_id, s.stream, s.no, make_interval(secs => s.bonus) AS bonus,
           s.at - make_interval(secs => s.bonus) AS at,
           %(until)s::timestamptz - make_interval(secs => s.bonus) AS until
    FROM unnest(%(lanes)s::int[], %(ats)s::timestamptz[], %(nos)s::bigint[], %(bonuses)s::float8[])
        WITH ORDINALITY AS s(lane_id, at, no, bonus, stream)
)
SELECT s.stream, found.order_time + s.bonus, found.job_no, found.created_at, found.matched,
       found.is_last
FROM streams AS s
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT order_time, job_no, created_at, place = %(look)s AS is_last,
               state IN ({{INITIAL_PENDING}}) AND created_at = changed_at
                   AND coalesce({condition}, false) AS matched
        FROM (
            SELECT order_time, job_no, created_at, changed_at, eligible_at, state, error_category,
                   error_code, blocked,
                   row_number() OVER (ORDER BY order_time {direction}, job_no {direction}) AS place
            FROM ready
            WHERE due AND lane_id = s.lane_id AND (order_time, job_no) {beyond} (s.at, s.no)
              AND order_time {before} s.until
            ORDER BY order_time {direction}, job_no {direction}
            LIMIT %(look)s
        ) AS moving
    ) AS judged
    WHERE matched OR is_last
    ORDER BY order_time {direction}, job_no {direction}
    LIMIT %(want)s
) AS found
ORDER BY 2 {direction}, 3 {direction}
LIMIT %(give)s
