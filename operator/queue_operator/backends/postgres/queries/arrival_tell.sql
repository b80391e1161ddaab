-- Part of others: tells of jobs that wait again: of what is due where it lies, of the rest when it will be.
-- Parameters: none; it reads `waiting`: job_no, lane_id, order_time, due, eligible_at. Index: none.
-- Trap: each job is told by itself, because their places are old: a claim walks all that is dead
--   between the ends of a range.
arrived AS (
    INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos, due_at)
    SELECT coalesce(array_agg(lane_id) FILTER (WHERE due), '{}'),
           coalesce(array_agg(order_time) FILTER (WHERE due), '{}'),
           coalesce(array_agg(job_no) FILTER (WHERE due), '{}'),
           coalesce(array_agg(order_time) FILTER (WHERE due), '{}'),
           coalesce(array_agg(job_no) FILTER (WHERE due), '{}'),
           min(eligible_at) FILTER (WHERE NOT due)
    FROM waiting HAVING count(*) > 0
)
