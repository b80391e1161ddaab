-- Completed jobs of lanes that have few jobs, in the order of their completion.
-- Parameters, words and answer: as search_running.sql.
-- Index: job_by_lane, which is made for what says `lane_id > 0`, and final_pkey.
-- Traps: reads all jobs of the lanes. The state is asked for outside, or a plan from when there
--   were few jobs walks final_done for each of them.
SELECT 1::bigint, moving.finalized_at, moving.job_no, moving.created_at, true, false
FROM unnest(%(lanes)s::int[]) AS s(lane_id)
CROSS JOIN LATERAL (
    SELECT job_no FROM job WHERE job.lane_id = s.lane_id AND job.lane_id > 0 OFFSET 0
) AS held
CROSS JOIN LATERAL (
    SELECT finalized_at, job_no, created_at, changed_at, eligible_at, state, error,
           false AS blocked
    FROM final
    WHERE final.job_no = held.job_no LIMIT 1
) AS moving
WHERE moving.state IN ({{COMPLETED}})
  AND (moving.finalized_at, moving.job_no) {beyond}
          ((%(ats)s::timestamptz[])[1], (%(nos)s::bigint[])[1])
  AND moving.finalized_at {before} %(until)s
  AND {condition}
ORDER BY moving.finalized_at {direction}, moving.job_no {direction}
LIMIT %(want)s
