-- Jobs of some lanes whose newest attempt failed, in the order of their failures.
-- Parameters, words and answer: as search_jobs.sql; source and which: a table and the condition of
--   its index. Index: ready_failed or final_failed.
WITH streams AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::int[], %(ats)s::timestamptz[], %(nos)s::bigint[])
        WITH ORDINALITY AS s(lane_id, at, no, stream)
)
SELECT s.stream, found.at, found.job_no, found.created_at, found.matched, found.is_last
FROM streams AS s
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT at, job_no, created_at, place = %(look)s AS is_last,
               coalesce({condition}, false) AS matched
        FROM (
            SELECT job_no, created_at, changed_at, eligible_at, state, error_category,
                   error_code, false AS blocked, coalesce(failed_at, changed_at) AS at,
                   row_number() OVER (
                       ORDER BY coalesce(failed_at, changed_at) {direction}, job_no {direction}
                   ) AS place
            FROM {source}
            WHERE {which} AND lane_id = s.lane_id
              AND (coalesce(failed_at, changed_at), job_no) {beyond} (s.at, s.no)
              AND coalesce(failed_at, changed_at) {before} %(until)s
            ORDER BY coalesce(failed_at, changed_at) {direction}, job_no {direction}
            LIMIT %(look)s
        ) AS moving
    ) AS judged
    WHERE matched OR is_last
    ORDER BY at {direction}, job_no {direction}
    LIMIT %(want)s
) AS found
ORDER BY 2 {direction}, 3 {direction}
LIMIT %(give)s
