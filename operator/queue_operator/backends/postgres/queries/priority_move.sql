-- Moves waiting jobs to the lanes of another priority, as if they had been submitted with it; gives
-- the lanes that they came to.
-- Parameters: arrays of equal length: job_nos (bigint), lanes (int), bonuses (of the priority,
--   seconds). Index: ready's and job's primary keys. Locks: the rows of `ready`; one that is being
--   claimed is waited for, and is not there any more then.
-- Traps: what runs is not touched, since whoever claimed it counts it in the lane that it had. Without
--   `= ANY`, a plan from when few jobs waited reads all of `ready`, and `before` for each of them.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_nos)s::bigint[], %(lanes)s::int[], %(bonuses)s::float8[])
        AS g(job_no, new_lane_id, bonus_s)
    ORDER BY job_no
), before AS MATERIALIZED (
    SELECT ready.job_no, ready.lane_id, ready.state, ready.retry_count, ready.blocked,
           given.new_lane_id, given.bonus_s
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM ready
        WHERE ready.job_no = given.job_no AND ready.lane_id <> given.new_lane_id FOR UPDATE
    ) ready
), moved AS (
    UPDATE ready
    SET lane_id = before.new_lane_id,
        order_time = coalesce(ready.last_retry_at, ready.created_at)
                     - make_interval(secs => before.bonus_s)
    FROM before
    WHERE ready.job_no = before.job_no AND ready.job_no = ANY (%(job_nos)s::bigint[])
    RETURNING ready.job_no, ready.lane_id, ready.order_time, ready.due, ready.eligible_at,
              ready.blocked
), waiting AS (
    SELECT * FROM moved WHERE NOT blocked
), {{arrived}}, relabelled AS (
    UPDATE job SET lane_id = before.new_lane_id FROM before
    WHERE job.job_no = before.job_no AND job.job_no = ANY (%(job_nos)s::bigint[])
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
    SELECT lane_id, state, -count(*), -sum(retry_count), -count(*) FILTER (WHERE blocked)
    FROM before GROUP BY lane_id, state
    UNION ALL
    SELECT new_lane_id, state, count(*), sum(retry_count), count(*) FILTER (WHERE blocked)
    FROM before GROUP BY new_lane_id, state
)
SELECT DISTINCT lane_id FROM waiting WHERE due
