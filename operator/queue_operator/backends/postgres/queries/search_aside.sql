-- Waiting jobs of some lanes that search_waiting.sql leaves out: delayed, waiting for others,
-- retried, or with a time of creation that the submitter gave.
-- Parameters, words and answer: as search_jobs.sql; key: created_at or changed_at.
-- Index: ready_aside_created or ready_aside_moved, whose condition is spelt here.
WITH streams AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::int[], %(ats)s::timestamptz[], %(nos)s::bigint[])
        WITH ORDINALITY AS s(lane_id, at, no, stream)
)
SELECT s.stream, found.at, found.job_no, found.created_at, found.matched, found.is_last
FROM streams AS s
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT {key} AS at, job_no, created_at, place = %(look)s AS is_last,
               coalesce({condition}, false) AS matched
        FROM (
            SELECT job_no, created_at, changed_at, eligible_at, state, error_category,
                   error_code, blocked,
                   row_number() OVER (ORDER BY {key} {direction}, job_no {direction}) AS place
            FROM ready
            WHERE (NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at)
              AND lane_id = s.lane_id AND ({key}, job_no) {beyond} (s.at, s.no)
              AND {key} {before} %(until)s
            ORDER BY {key} {direction}, job_no {direction}
            LIMIT %(look)s
        ) AS moving
    ) AS judged
    WHERE matched OR is_last
    ORDER BY at {direction}, job_no {direction}
    LIMIT %(want)s
) AS found
ORDER BY 2 {direction}, 3 {direction}
LIMIT %(give)s
