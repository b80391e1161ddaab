-- Part of others: makes jobs due whose delay or backoff is over and that have an attempt left, and
-- tells of them as arrivals. `staged` has them; `waits` has the time before which no job is left that
-- waits for one.
-- Parameters: since (timestamptz): nothing waits before that; until (timestamptz): it is looked no
--   further; max_rows.
-- Index: ready_stage, from `since` on; ready_pkey. Locks: the rows made due; those that another
--   replica is making due are passed over.
-- Traps: what lies before `since` are the dead entries of jobs staged before, any number of them. A
--   job without an attempt left stays where it is, until it is swept.
overdue AS MATERIALIZED (
    SELECT job_no, eligible_at,
           (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE AS may_run
    FROM ready
    WHERE NOT due AND NOT blocked AND eligible_at >= %(since)s
      AND eligible_at <= least(now(), %(until)s::timestamptz)
    ORDER BY eligible_at LIMIT %(max_rows)s
), held AS MATERIALIZED (
    SELECT job_no FROM ready
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM overdue WHERE may_run))
      AND NOT due AND NOT blocked AND eligible_at <= now()
    FOR UPDATE SKIP LOCKED
), staged AS (
    UPDATE ready SET due = true
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM held))
    RETURNING job_no, lane_id, order_time
), arrived AS (
    INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos)
    SELECT array_agg(lane_id), array_agg(order_time), array_agg(job_no), array_agg(order_time),
           array_agg(job_no)
    FROM staged HAVING count(*) > 0
), waits AS (
    SELECT least(
        (SELECT min(eligible_at) FROM overdue
         WHERE (job_no IN (SELECT job_no FROM staged)) IS NOT TRUE),
        CASE WHEN (SELECT count(*) FROM overdue) < %(max_rows)s
             THEN least(now(), %(until)s::timestamptz)
             ELSE (SELECT max(eligible_at) FROM overdue) END
    ) AS since
)
