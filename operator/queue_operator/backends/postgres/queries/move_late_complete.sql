-- A job that was given up as UNKNOWN_STOPPED turns out to be done.
-- Parameters: arrays of equal length: job_nos, results, content_types, errors (JSON text);
--   NULL keeps the old one; unfenced (bool: it came without the token; NULL: with it).
-- Index: final_pkey; that of {{heard}}.
-- Locks: none that `lock.sql` has not taken in this transaction.
WITH given AS MATERIALIZED (
    SELECT g.* FROM unnest(%(job_nos)s::bigint[], %(results)b::bytea[],
                           %(content_types)s::text[], %(errors)s::text[], %(unfenced)s::bool[])
        AS g(job_no, new_result, content_type, new_error, unfenced)
), done AS (
    UPDATE final
    SET state = {{COMPLETED}}, result = coalesce(new_result, result),
        result_content_type = CASE WHEN new_result IS NULL THEN result_content_type
                                   ELSE content_type END,
        error = coalesce(new_error::jsonb, error),
        failed_at = CASE WHEN new_error IS NOT NULL THEN now()
            ELSE coalesce(failed_at, CASE WHEN error IS NOT NULL THEN changed_at END) END,
        finalized_at = now(), changed_at = now(), transition = transition + 1,
        reason = 'COMPLETE'
    FROM given
    WHERE final.job_no = given.job_no AND final.job_no = ANY (%(job_nos)s::bigint[])
      AND final.state IN ({{UNKNOWN_STOPPED}})
    RETURNING final.*, given.new_error, given.unfenced
), history AS (
    INSERT INTO attempt (job_no, version, token, number, event, from_state, state, assigned_at,
                         ended_at, assignee_id, worker_name, host, error, eligible_at, unfenced)
    SELECT job_no, lease_version, token, attempt, 'COMPLETE', {{UNKNOWN_STOPPED}}, {{COMPLETED}},
           assigned_at, now(), assignee_id, worker_name, host, new_error::jsonb, eligible_at, unfenced
    FROM done WHERE token IS NOT NULL
    ON CONFLICT (job_no, version) DO UPDATE
    SET event = excluded.event, from_state = excluded.from_state, state = excluded.state,
        ended_at = excluded.ended_at, error = excluded.error, unfenced = excluded.unfenced
), rarer AS (
    INSERT INTO transition (job_no, number, event, from_state, to_state, at, reason)
    SELECT job_no, transition, 'COMPLETE', {{UNKNOWN_STOPPED}}, {{COMPLETED}}, now(), ''
    FROM done
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, run_us, lane_ids, untold)
    SELECT 'COMPLETE', {{UNKNOWN_STOPPED}}, {{COMPLETED}}, array_agg(job_no), array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0)),
           array_agg(lane_id), NULL
    FROM done HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{UNKNOWN_STOPPED}}, -count(*), 0 FROM done GROUP BY lane_id
    UNION ALL
    SELECT lane_id, {{COMPLETED}}, count(*), 0 FROM done GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM done WHERE mirrored
), ended AS MATERIALIZED (
    SELECT {{COMPLETED}} AS state, array_agg(job_no) AS nos, array_agg(attempt) AS attempts
    FROM (SELECT job_no, attempt FROM done ORDER BY job_no) AS those
), {{heard}}
SELECT count(*) FROM done
