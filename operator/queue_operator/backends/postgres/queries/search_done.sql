-- Completed jobs of some lanes in the order of their completion, which is their last change.
-- Parameters, words and answer: as search_running.sql.
-- Index: final_done. Traps: it has no lanes, so this looks at the jobs of all of the namespace; for
--   lanes with few jobs there is search_gathered.sql. All lanes of a search are of one namespace.
SELECT 1::bigint, judged.finalized_at, judged.job_no, judged.created_at, judged.matched,
       judged.is_last
FROM (
    SELECT finalized_at, job_no, created_at, place = %(look)s AS is_last,
           lane_id IN (SELECT unnest(%(lanes)s::int[]))
               AND coalesce({condition}, false) AS matched
    FROM (
        SELECT lane_id, finalized_at, job_no, created_at, changed_at, eligible_at, state, error,
               false AS blocked,
               row_number() OVER (ORDER BY finalized_at {direction}, job_no {direction}) AS place
        FROM final
        WHERE state IN ({{COMPLETED}})
          AND namespace_id = (SELECT namespace_id FROM lane WHERE id = (%(lanes)s::int[])[1])
          AND (finalized_at, job_no) {beyond}
              ((%(ats)s::timestamptz[])[1], (%(nos)s::bigint[])[1])
          AND finalized_at {before} %(until)s
        ORDER BY finalized_at {direction}, job_no {direction}
        LIMIT %(look)s
    ) AS moving
) AS judged
WHERE matched OR is_last
ORDER BY finalized_at {direction}, job_no {direction}
LIMIT %(want)s
