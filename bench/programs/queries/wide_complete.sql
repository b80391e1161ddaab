-- Completes jobs that run under the given token.
-- Parameters and answer: as the product's complete.sql. Index: job_pkey. Locks: the rows, in order
--   of number.
-- Traps: those of complete.sql, and that no column which is set here may be one of an index.
WITH done AS MATERIALIZED (
    UPDATE job
    SET state = {{COMPLETED}}, transition = transition + 1, changed_at = now(),
        finalized_at = now(), reason = 'COMPLETE', expires_at = NULL, deadline = NULL,
        result = CASE
            WHEN ((SELECT %(lengths)s::bigint[]))[
                     width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))] >= 0
            THEN substring((SELECT %(results)s::bytea)
                FROM ((SELECT %(starts)s::bigint[]))[
                    width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))]::int
                FOR ((SELECT %(lengths)s::bigint[]))[
                    width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))]::int)
            ELSE result END,
        result_content_type = CASE
            WHEN ((SELECT %(lengths)s::bigint[]))[
                     width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))] >= 0
            THEN ((SELECT %(content_types)s::text[]))[((SELECT %(kinds)s::bigint[]))[
                width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))]]
            ELSE result_content_type END
    WHERE job_no = ANY (%(job_nos)s::bigint[])
      AND token = ((SELECT %(tokens)s::uuid[]))[
              width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))]
      AND state IN ({{RUNNING}}) AND NOT has_children
    RETURNING job_no, lane_id, attempt, assigned_at, mirrored, assignee_id
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, run_us, lane_ids)
    SELECT 'COMPLETE', {{RUNNING}}, {{COMPLETED}}, array_agg(job_no), array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0)),
           array_agg(lane_id)
    FROM done HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{RUNNING}}, -count(*), 0 FROM done GROUP BY lane_id
    UNION ALL
    SELECT lane_id, {{COMPLETED}}, count(*), 0 FROM done GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM done WHERE mirrored
)
SELECT job_no, assignee_id FROM done
