-- Sends jobs back to wait: after a failure, a loss, a release, a hand-back or a manual retry.
-- Parameters: arrays of equal length: job_nos, states, events, errors (JSON text, NULL keeps
--   the old one), delays (seconds until eligible), bonuses (of the priority, seconds),
--   retries, failures, returned (int: 1 counts a retry, a failure, takes an attempt back),
--   clears (bool: the token is void from now on), records (bool: the event ends an attempt),
--   allowed (int: a new max_attempts, NULL keeps it), resets (bool: attempt becomes 0), lanes
--   (int: of a new priority, NULL keeps it), results (NULL keeps it), drops (bool: not even
--   then), content_types, notes (why, for the history), unfenced (bool: it came without the
--   token; NULL: with it).
-- Index: the primary keys, that of `suspension` too. Locks: none that `lock.sql` has not taken in
--   this transaction.
-- Traps: a loss keeps its place in the order, all others queue up anew. A row that leaves
--   `ready` comes back to it under the same key: counting what was deleted makes sure that all
--   of it is gone before the first is inserted.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_nos)s::bigint[], %(states)s::text[], %(events)s::text[],
                         %(errors)s::text[], %(delays)s::float8[], %(bonuses)s::float8[],
                         %(retries)s::int[], %(failures)s::int[], %(returned)s::int[],
                         %(clears)s::bool[], %(records)s::bool[], %(allowed)s::int[],
                         %(resets)s::bool[], %(lanes)s::int[], %(results)b::bytea[],
                         %(drops)s::bool[], %(content_types)s::text[], %(notes)s::text[],
                         %(unfenced)s::bool[])
        AS g(job_no, new_state, event, new_error, delay_s, bonus_s, retries, failures, returned,
             clears, records, allowed, resets, new_lane_id, new_result, drops,
             content_type, note, unfenced)
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
              lease.state, false AS blocked, given.*
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
              ready.state, ready.blocked, given.*
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM ready WHERE ready.job_no = given.job_no FOR UPDATE
    ) ready
), waited AS (
    DELETE FROM ready WHERE job_no = ANY (ARRAY(SELECT job_no FROM from_ready)) RETURNING job_no
), from_final AS MATERIALIZED (
    SELECT final.lane_id, final.order_time, final.created_at, final.eligible_at, final.attempt,
           final.lease_version,
              final.transition, final.retry_count, final.failure_count,
              final.max_attempts, final.timeout_s, final.backoff, final.last_retry_at,
              final.token, final.assignee_id, final.worker_name, final.host,
              final.assigned_at, final.started_at, final.error,
              coalesce(final.failed_at,
                       CASE WHEN final.error IS NOT NULL THEN final.changed_at END) AS failed_at,
              final.mirrored,
              final.has_children, false AS checkpointed, final.result, final.result_content_type,
              final.state, false AS blocked, given.*
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM final WHERE final.job_no = given.job_no FOR UPDATE
    ) final
), ended AS (
    DELETE FROM final WHERE job_no = ANY (ARRAY(SELECT job_no FROM from_final))
), gone AS MATERIALIZED (
    SELECT *, CASE WHEN resets THEN 0 ELSE attempt - returned END AS new_attempt,
           coalesce(allowed, max_attempts) AS new_max_attempts,
           coalesce((SELECT is_on FROM suspension WHERE suspension.job_no = moved.job_no LIMIT 1),
                    false) AS is_held
    FROM (
        SELECT * FROM from_lease
        UNION ALL SELECT * FROM from_ready WHERE (SELECT count(*) FROM waited) >= 0
        UNION ALL SELECT * FROM from_final
    ) moved
), back AS (
    INSERT INTO ready (job_no, lane_id, state, order_time, created_at, due, eligible_at, attempt,
                       lease_version, transition, retry_count, failure_count, max_attempts,
                       timeout_s, backoff, last_retry_at, token, assignee_id, worker_name, host,
                       assigned_at, started_at, error, error_category, error_code, failed_at,
                       changed_at, mirrored, has_children, checkpointed, result,
                       result_content_type, blocked)
    SELECT job_no, coalesce(new_lane_id, lane_id), new_state,
           CASE WHEN retries > 0 THEN now() - make_interval(secs => bonus_s)
                -- Another priority moves it as if it had been submitted with that one.
                WHEN new_lane_id IS NOT NULL
                THEN coalesce(last_retry_at, created_at) - make_interval(secs => bonus_s)
                ELSE order_time END,
           created_at,
           -- Without an attempt left it is not to be claimed: one that was lost on its last
           -- attempt is given up by the sweeper.
           delay_s <= 0 AND NOT is_held
               AND (new_attempt >= nullif(new_max_attempts, 0)) IS NOT TRUE,
           now() + make_interval(secs => delay_s), new_attempt, lease_version, transition + 1,
           retry_count + retries, failure_count + failures, new_max_attempts,
           timeout_s, backoff, CASE WHEN retries > 0 THEN now() ELSE last_retry_at END,
           CASE WHEN clears THEN NULL ELSE token END, assignee_id, worker_name, host,
           assigned_at, started_at, coalesce(new_error::jsonb, error),
           coalesce(new_error::jsonb, error) ->> 'category',
           coalesce(new_error::jsonb, error) ->> 'code',
           CASE WHEN new_error IS NULL THEN failed_at ELSE now() END, now(), mirrored, has_children,
           checkpointed,
           CASE WHEN drops THEN new_result ELSE coalesce(new_result, result) END,
           CASE WHEN new_result IS NOT NULL THEN content_type
                WHEN NOT drops THEN result_content_type END,
           CASE WHEN NOT is_held THEN false END
    FROM gone
    RETURNING job_no, lane_id, order_time, due, eligible_at, blocked
), waiting AS (
    SELECT * FROM back WHERE NOT blocked
), {{arrived}}, checked AS (
    -- Without an attempt left it is given up when its time for a late outcome is over.
    INSERT INTO lease_check (kind, look_at, leases)
    SELECT 'EXHAUST', now() + make_interval(secs => delay_s),
           array_agg((job_no << 16) | (lease_version & 65535))
    FROM gone WHERE new_state IN ({{UNKNOWN_RETRY}}) AND new_attempt >= new_max_attempts
                AND new_max_attempts > 0
    GROUP BY delay_s
), relabelled AS (
    UPDATE job SET lane_id = gone.new_lane_id
    FROM gone WHERE job.job_no = gone.job_no AND gone.new_lane_id IS NOT NULL
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
    -- still rewrite it.
    INSERT INTO transition (job_no, number, event, from_state, to_state, at, reason)
    SELECT job_no, transition + 1, event, state, new_state, now(), note
    FROM gone WHERE NOT (records AND token IS NOT NULL AND state IN ({{RUNNING}}))
                 OR new_state IN ({{UNKNOWN_RETRY}})
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, run_us, failed,
                           lane_ids)
    SELECT event, state, new_state, array_agg(job_no), array_agg(attempt),
           CASE WHEN bool_or(records) THEN array_agg(CASE WHEN records THEN
               greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0) END) END,
           CASE WHEN count(new_error) > 0 THEN
               jsonb_agg(CASE WHEN new_error IS NOT NULL THEN jsonb_build_object(
                   'category', new_error::jsonb -> 'category',
                   'code', new_error::jsonb -> 'code') END) END,
           array_agg(lane_id)
    FROM gone GROUP BY event, state, new_state
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
    SELECT lane_id, state, -count(*), -sum(retry_count), -count(*) FILTER (WHERE blocked)
    FROM gone GROUP BY lane_id, state
    UNION ALL
    SELECT coalesce(new_lane_id, lane_id), new_state, count(*), sum(retry_count + retries), 0
    FROM gone GROUP BY coalesce(new_lane_id, lane_id), new_state
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM gone WHERE mirrored
)
SELECT count(*) FROM gone
