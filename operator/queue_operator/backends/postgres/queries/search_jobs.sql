-- Jobs of some lanes in the order of their creation, in whatever state.
-- Parameters: lanes (int[]), ats (timestamptz[]), nos (bigint[]): per stream its lane and where
--   it has got to; until: the far end, exclusive; look: how many to look at in each stream; want:
--   how many to give of each, and give: of all together; plain: nothing is asked of a job but its
--   lane and its creation; if something is, in_final, in_ready and in_lease: where a match may be.
--   Words: direction, and as comparisons beyond (further in it) and before (not so far).
-- Index: job_by_lane; where something is asked of the job's state, the primary keys of final,
--   ready and lease, in this order, because among very many jobs most have ended.
-- Gives per stream those that match, and the last one looked at, by which the caller knows that
--   there may be more. Traps: the order is the index's, so the innermost limit stops the scan;
--   the index is made for what says `lane_id > 0`.
WITH streams AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::int[], %(ats)s::timestamptz[], %(nos)s::bigint[])
        WITH ORDINALITY AS s(lane_id, at, no, stream)
)
SELECT s.stream, found.created_at, found.job_no, found.created_at, found.matched, found.is_last
FROM streams AS s
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT looked.created_at, looked.job_no, looked.place = %(look)s AS is_last,
               %(plain)s::bool OR coalesce({condition}, false) AS matched
        FROM (
            SELECT created_at, job_no,
                   row_number() OVER (ORDER BY created_at {direction}, job_no {direction}) AS place
            FROM job
            WHERE lane_id = s.lane_id AND lane_id > 0
              AND (created_at, job_no) {beyond} (s.at, s.no)
              AND created_at {before} %(until)s
            ORDER BY created_at {direction}, job_no {direction}
            LIMIT %(look)s
        ) AS looked
        LEFT JOIN LATERAL (
            SELECT state, created_at, changed_at, eligible_at, error, false AS blocked
            FROM final WHERE final.job_no = looked.job_no AND %(in_final)s::bool
            UNION ALL
            SELECT state, created_at, changed_at, eligible_at, error, blocked
            FROM ready WHERE ready.job_no = looked.job_no AND %(in_ready)s::bool
            UNION ALL
            SELECT state, created_at, changed_at, eligible_at, error, false
            FROM lease WHERE lease.job_no = looked.job_no AND %(in_lease)s::bool
            LIMIT 1
        ) AS moving ON true
    ) AS judged
    WHERE matched OR is_last
    ORDER BY created_at {direction}, job_no {direction}
    LIMIT %(want)s
) AS found
ORDER BY 2 {direction}, 3 {direction}
LIMIT %(give)s
