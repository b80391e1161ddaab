-- Assigned jobs of some lanes.
-- Parameters, words and answer: as search_jobs.sql, but all lanes are one stream, which has got
--   to the first of ats and nos; key: created_at or changed_at.
-- Index: those of {{standing}}; lease_pkey: all that runs is read.
-- Trap: the set that IS TRUE is hashed; as a join it may be gone through for each job, with a
--   plan that knows nothing of how many lanes there are.
SELECT 1::bigint, moving.{key}, moving.job_no, moving.created_at, true, false
FROM (
    SELECT lane_id, job_no, created_at, changed_at, eligible_at, state, error, false AS blocked
    FROM lease
    WHERE job_no = ANY (ARRAY(
        SELECT DISTINCT unnest(leases) >> 16 FROM ({{standing}}) AS standing))
) AS moving
WHERE (moving.lane_id IN (SELECT unnest(%(lanes)s::int[]))) IS TRUE
  AND (moving.{key}, moving.job_no) {beyond} ((%(ats)s::timestamptz[])[1], (%(nos)s::bigint[])[1])
  AND moving.{key} {before} %(until)s
  AND {condition}
ORDER BY moving.{key} {direction}, moving.job_no {direction}
LIMIT %(want)s
