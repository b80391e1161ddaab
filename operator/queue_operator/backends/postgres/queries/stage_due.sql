-- Part of others: makes jobs due whose delay or backoff is over and that have an attempt left, and
-- tells of them as arrivals. `staged` has them; `waits` has the time before which no job is left that
-- can be made due.
-- Parameters: since (timestamptz): nothing waits before that; until (timestamptz): it is looked no
--   further; max_rows.
-- Index: ready_stage, from `since` on, twice; ready_pkey. Locks: the rows made due; those that somebody
--   else has locked are passed over.
-- Traps: what lies before `since` are the dead entries of jobs staged before, any number of them. What
--   is passed over must not count for the limit, or as many as that would hold up all others; one that
--   is locked keeps `since` where it is, since it may be undone what the other does with it. A job
--   without an attempt left does not: it is never made due, but swept, and where it gets another
--   attempt it is told of anew.
held AS MATERIALIZED (
    SELECT job_no FROM ready
    WHERE NOT due AND NOT blocked AND eligible_at >= %(since)s
      AND eligible_at <= least(now(), %(until)s::timestamptz)
      AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
    ORDER BY eligible_at LIMIT %(max_rows)s
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
    SELECT least(now(), %(until)s::timestamptz, (
        SELECT eligible_at FROM ready
        WHERE NOT due AND NOT blocked AND eligible_at >= %(since)s
          AND eligible_at <= least(now(), %(until)s::timestamptz)
          AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
          AND (job_no IN (SELECT job_no FROM staged)) IS NOT TRUE
        ORDER BY eligible_at LIMIT 1
    )) AS since
)
