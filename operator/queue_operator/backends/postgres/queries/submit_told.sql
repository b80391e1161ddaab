-- What is told of jobs that were copied in: the log's row and the counts.
-- Parameters: numbers, ids, lane_of (arrays, one entry per job), event_correlations (NULL where
--   no job has one), event_lanes (jsonb), event_lane_ids as in `submit.sql`; lanes and lane_jobs (int[]): how
--   many jobs came into each lane.
WITH logged AS (
    INSERT INTO job_event (event, to_state, job_nos, ids, correlations, lane_of, lanes, lane_ids)
    VALUES ('SUBMIT', {{INITIAL_PENDING}}, %(numbers)s::bigint[], %(ids)s::text[],
            %(event_correlations)s::text[], %(lane_of)s::int[], %(event_lanes)s::jsonb,
            %(event_lane_ids)s::int[])
)
INSERT INTO count_delta (lane_id, state, jobs, retries)
SELECT lane_id, {{INITIAL_PENDING}}, jobs, 0
FROM unnest(%(lanes)s::int[], %(lane_jobs)s::int[]) AS l(lane_id, jobs)
