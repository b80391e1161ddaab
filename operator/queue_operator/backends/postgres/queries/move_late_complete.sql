-- A job that was given up as UNKNOWN_STOPPED turns out to be done.
-- Parameters: job_nos, results, content_types (arrays). Index: final_pkey.
-- Locks: none that `lock.sql` has not taken in this transaction.
WITH given AS MATERIALIZED (
    SELECT g.* FROM unnest(%(job_nos)s::bigint[], %(results)s::bytea[], %(content_types)s::text[])
        AS g(job_no, new_result, content_type)
), done AS (
    UPDATE final
    SET state = {{COMPLETED}}, result = new_result, result_content_type = content_type,
        finalized_at = now(), changed_at = now(), transition = transition + 1,
        reason = 'COMPLETE'
    FROM given WHERE final.job_no = given.job_no AND final.state IN ({{UNKNOWN_STOPPED}})
    RETURNING final.*
), history AS (
    INSERT INTO attempt (job_no, version, token, number, event, state, assigned_at, ended_at,
                         assignee_id, worker_name, host)
    SELECT job_no, lease_version, token, attempt, 'COMPLETE', {{COMPLETED}}, assigned_at, now(),
           assignee_id, worker_name, host
    FROM done WHERE token IS NOT NULL
    ON CONFLICT (job_no, version) DO UPDATE
    SET event = excluded.event, state = excluded.state, ended_at = excluded.ended_at,
        error = excluded.error
), logged AS (
    INSERT INTO job_event (event, job_nos, from_states, to_states, attempts, run_us)
    SELECT 'COMPLETE', array_agg(job_no), array_agg({{UNKNOWN_STOPPED}}::text),
           array_agg({{COMPLETED}}::text), array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0))
    FROM done HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{UNKNOWN_STOPPED}}, -count(*), 0 FROM done GROUP BY lane_id
    UNION ALL
    SELECT lane_id, {{COMPLETED}}, count(*), 0 FROM done GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM done WHERE mirrored
)
SELECT count(*) FROM done
