-- What is told of jobs that were copied in: the log's row, the counts, and where they wait.
-- Parameters: numbers, ids, lane_of (arrays, one entry per job), event_correlations (NULL where
--   no job has one), event_lanes (jsonb), event_lane_ids as in `submit.sql`; lanes and lane_jobs (int[]): how
--   many jobs came into each lane; arrived, firsts, first_nos, lasts, last_nos, due_at: as in
--   `arrival`.
WITH logged AS (
    INSERT INTO job_event (event, to_state, job_nos, ids, correlations, lane_of, lanes, lane_ids)
    VALUES ('SUBMIT', {{INITIAL_PENDING}}, %(numbers)s::bigint[], %(ids)s::text[],
            %(event_correlations)s::text[], %(lane_of)s::int[], %(event_lanes)s::jsonb,
            %(event_lane_ids)s::int[])
), arrived AS (
    INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos, due_at)
    VALUES (%(arrived)s::int[], %(firsts)s::timestamptz[], %(first_nos)s::bigint[],
            %(lasts)s::timestamptz[], %(last_nos)s::bigint[], %(due_at)s::timestamptz)
)
INSERT INTO count_delta (lane_id, state, jobs, retries)
SELECT lane_id, {{INITIAL_PENDING}}, jobs, 0
FROM unnest(%(lanes)s::int[], %(lane_jobs)s::int[]) AS l(lane_id, jobs)
