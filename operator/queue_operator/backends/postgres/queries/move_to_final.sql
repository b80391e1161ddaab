-- Ends jobs: from waiting or running to a terminal state.
-- Parameters: arrays of equal length: job_nos, states, events, errors (JSON text, NULL keeps
--   the old one), reasons, results, content_types, retries, returned (int: 1 counts a
--   retry, takes an attempt back), records (bool: the event ends an attempt), cancel_reasons, notes (why, for
--   the history), unfenced (bool: it came without the token; NULL: with it).
-- Index: the primary keys; that of {{heard}}. Locks: none that `lock.sql` has not taken in this transaction.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_nos)s::bigint[], %(states)s::text[], %(events)s::text[],
                         %(errors)s::text[], %(reasons)s::text[], %(results)b::bytea[],
                         %(content_types)s::text[], %(retries)s::int[], %(returned)s::int[],
                         %(records)s::bool[], %(cancel_reasons)s::text[], %(notes)s::text[],
                         %(unfenced)s::bool[])
        AS g(job_no, new_state, event, new_error, reason, new_result, content_type, retries, returned,
             records, given_reason, note, unfenced)
), from_lease AS MATERIALIZED (
    SELECT lease.lane_id, lease.order_time, lease.created_at, lease.eligible_at, lease.attempt,
           lease.lease_version,
              lease.transition, lease.retry_count, lease.failure_count,
              lease.max_attempts, lease.timeout_s, lease.backoff, lease.last_retry_at,
              lease.token, lease.assignee_id, lease.worker_name, lease.host,
              lease.assigned_at, lease.started_at, lease.error,
              coalesce(lease.failed_at,
                       CASE WHEN lease.error IS NOT NULL THEN lease.changed_at END) AS failed_at,
              lease.mirrored,
              lease.has_children, lease.checkpointed, lease.result, lease.result_content_type,
              lease.state, lease.cancel_reason, false AS blocked, given.*
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM lease WHERE lease.job_no = given.job_no FOR UPDATE
    ) lease
), leased AS (
    DELETE FROM lease WHERE job_no = ANY (ARRAY(SELECT job_no FROM from_lease))
), from_ready AS MATERIALIZED (
    SELECT ready.lane_id, ready.order_time, ready.created_at, ready.eligible_at, ready.attempt,
           ready.lease_version,
              ready.transition, ready.retry_count, ready.failure_count,
              ready.max_attempts, ready.timeout_s, ready.backoff, ready.last_retry_at,
              ready.token, ready.assignee_id, ready.worker_name, ready.host,
              ready.assigned_at, ready.started_at, ready.error,
              coalesce(ready.failed_at,
                       CASE WHEN ready.error IS NOT NULL THEN ready.changed_at END) AS failed_at,
              ready.mirrored,
              ready.has_children, ready.checkpointed, ready.result, ready.result_content_type,
              ready.state, ''::text, ready.blocked, given.*
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM ready WHERE ready.job_no = given.job_no FOR UPDATE
    ) ready
), waited AS (
    DELETE FROM ready WHERE job_no = ANY (ARRAY(SELECT job_no FROM from_ready))
), gone AS MATERIALIZED (
    SELECT * FROM from_lease UNION ALL SELECT * FROM from_ready
), finished AS (
    INSERT INTO final (job_no, lane_id, namespace_id, state, order_time, created_at, eligible_at,
                       attempt, lease_version,
                       transition, retry_count, failure_count, max_attempts, timeout_s, backoff,
                       last_retry_at, token, assignee_id, worker_name, host, assigned_at,
                       started_at, error, error_category, error_code, failed_at, changed_at,
                       mirrored, has_children, result, result_content_type, finalized_at, reason,
                       cancel_reason)
    SELECT job_no, lane_id, (SELECT namespace_id FROM lane WHERE lane.id = gone.lane_id),
           new_state, order_time, created_at, eligible_at, attempt - returned,
           lease_version,
           transition + 1, retry_count + retries, failure_count, max_attempts, timeout_s, backoff,
           CASE WHEN retries > 0 THEN now() ELSE last_retry_at END, token, assignee_id,
           worker_name, host, assigned_at, started_at, coalesce(new_error::jsonb, error),
           coalesce(new_error::jsonb, error) ->> 'category',
           coalesce(new_error::jsonb, error) ->> 'code',
           CASE WHEN new_error IS NULL THEN failed_at ELSE now() END, now(), mirrored, has_children,
           coalesce(new_result, result),
           CASE WHEN new_result IS NULL THEN result_content_type ELSE content_type END,
           now(), reason, coalesce(nullif(given_reason, ''), cancel_reason)
    FROM gone
), forgotten AS (
    DELETE FROM checkpoint
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone WHERE checkpointed))
), history AS (
    INSERT INTO attempt (job_no, version, token, number, event, from_state, state, assigned_at,
                         ended_at, assignee_id, worker_name, host, error, eligible_at, unfenced)
    SELECT job_no, lease_version, token, attempt, event, state, new_state, assigned_at, now(),
           assignee_id, worker_name, host, new_error::jsonb, eligible_at, unfenced
    FROM gone WHERE records AND token IS NOT NULL
    ON CONFLICT (job_no, version) DO UPDATE
    SET event = excluded.event, from_state = excluded.from_state, state = excluded.state,
        ended_at = excluded.ended_at, error = excluded.error, unfenced = excluded.unfenced
), rarer AS (
    -- What ended a running attempt is told by the attempt's row, unless a late outcome may
    -- still rewrite it or there is a reason to tell.
    INSERT INTO transition (job_no, number, event, from_state, to_state, at, reason)
    SELECT job_no, transition + 1, event, state, new_state, now(), note
    FROM gone WHERE NOT (records AND token IS NOT NULL AND state IN ({{RUNNING}}))
                 OR new_state IN ({{UNKNOWN_STOPPED}}, {{DEAD_LETTER}})
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, run_us, failed,
                           lane_ids, untold)
    SELECT event, state, new_state, array_agg(job_no), array_agg(attempt),
           CASE WHEN bool_or(records) THEN array_agg(CASE WHEN records THEN
               greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0) END) END,
           CASE WHEN count(new_error) > 0 AND new_state NOT IN ({{COMPLETED}}) THEN
               jsonb_agg(CASE WHEN new_error IS NOT NULL THEN jsonb_build_object(
                   'category', new_error::jsonb -> 'category',
                   'code', new_error::jsonb -> 'code') END) END,
           array_agg(lane_id), NULL
    FROM gone GROUP BY event, state, new_state
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
    SELECT lane_id, state, -count(*), 0, -count(*) FILTER (WHERE blocked)
    FROM gone GROUP BY lane_id, state
    UNION ALL
    SELECT lane_id, new_state, count(*), sum(retries), 0 FROM gone GROUP BY lane_id, new_state
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM gone WHERE mirrored
), ended AS MATERIALIZED (
    SELECT new_state AS state, array_agg(job_no ORDER BY job_no) AS nos,
           array_agg(attempt - returned ORDER BY job_no) AS attempts
    FROM gone GROUP BY new_state
), {{heard}}
SELECT count(*) FROM gone
