-- Numbers of the jobs of some lanes that have not ended: first the assigned ones, then those that
-- wait, which is the order in which `lock.sql` locks them.
-- Parameters: lanes (int[]), max_rows (NULL: all).
-- Index: those of {{standing}}; lease_pkey: all that runs is read; ready_claim and ready_undue, a range
--   per lane. Locks: none.
-- Traps: nothing here may look at a job that has ended, of which there may be any number; of what
--   waited in these lanes the dead entries are passed by while a transaction keeps the horizon back. The
--   index of what is not due is made for what says `lane_id > 0`. The set that IS TRUE is hashed.
SELECT job_no FROM (
    SELECT 0 AS place, job_no FROM lease
    WHERE job_no = ANY (ARRAY(
            SELECT DISTINCT unnest(leases) >> 16 FROM ({{standing}}) AS standing))
      AND (lane_id IN (SELECT unnest(%(lanes)s::int[]))) IS TRUE
    UNION ALL
    SELECT 1, job_no FROM ready WHERE due AND lane_id = ANY (%(lanes)s::int[])
    UNION ALL
    SELECT 1, job_no FROM ready
    WHERE NOT due AND lane_id > 0 AND lane_id = ANY (%(lanes)s::int[])
    LIMIT %(max_rows)s
) AS standing
ORDER BY place, job_no
