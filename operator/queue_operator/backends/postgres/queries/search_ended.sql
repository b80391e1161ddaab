-- Jobs of some lanes that ended, but only those that an index has for searches.
-- Parameters, words and answer: as search_jobs.sql; key: created_at or changed_at; which: the
--   condition of the index. Index: final_ended_created, final_ended_moved or final_early.
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
            SELECT job_no, created_at, changed_at, eligible_at, state, error, error_category,
                   error_code, false AS blocked,
                   row_number() OVER (ORDER BY {key} {direction}, job_no {direction}) AS place
            FROM final
            WHERE {which}
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
