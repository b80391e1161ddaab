-- The fast path of an outcome: jobs that run under the given token are completed. What is
-- not among the ids returned (stale, repeated, cancelling, unknown) takes the slow path.
-- Parameters: arrays namespaces (int), ids, tokens (uuid), results, content_types.
-- Index: job_namespace_id_id_key, lease_pkey. Locks: the lease rows, in order of number.
-- Traps: a plain join could be turned round by a plan that was made while a table was small,
--   and would then read the whole table for each row; LIMIT and FOR UPDATE inside a LATERAL
--   keep the look-up inside. The same holds for every statement here that takes a batch.
WITH given AS (
    SELECT * FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[],
                         %(results)s::bytea[], %(content_types)s::text[])
        AS g(namespace_id, id, token, result, content_type)
), known AS MATERIALIZED (
    SELECT found.job_no, given.* FROM given
    CROSS JOIN LATERAL (
        SELECT job_no FROM job WHERE job.namespace_id = given.namespace_id AND job.id = given.id LIMIT 1
    ) found
    ORDER BY found.job_no
), gone AS MATERIALIZED (
    SELECT held.*, known.namespace_id, known.id, known.result, known.content_type
    FROM known CROSS JOIN LATERAL (
        SELECT * FROM lease
        WHERE lease.job_no = known.job_no AND lease.token = known.token
          AND lease.state IN ({{RUNNING}})
        FOR UPDATE
    ) held
), removed AS (
    DELETE FROM lease WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), finished AS (
    INSERT INTO final (job_no, lane_id, state, order_time, eligible_at, attempt, lease_version,
                       transition, retry_count, failure_count, max_attempts, timeout_s, backoff,
                       last_retry_at, token, assignee_id, worker_name, host, assigned_at,
                       started_at, error, changed_at, mirrored, finalized_at, reason, result,
                       result_content_type)
    SELECT job_no, lane_id, {{COMPLETED}}, order_time, eligible_at, attempt, lease_version,
           transition + 1, retry_count, failure_count, max_attempts, timeout_s, backoff,
           last_retry_at, token, assignee_id, worker_name, host, assigned_at, started_at, error,
           now(), mirrored, now(), 'COMPLETE', result, content_type
    FROM gone
), history AS (
    INSERT INTO attempt (job_no, version, token, number, event, state, assigned_at, ended_at,
                         assignee_id, worker_name, host)
    SELECT job_no, lease_version, token, attempt, 'COMPLETE', {{COMPLETED}}, assigned_at, now(),
           assignee_id, worker_name, host
    FROM gone
), logged AS (
    INSERT INTO job_event (event, job_nos, from_states, to_states, attempts, run_us)
    SELECT 'COMPLETE', array_agg(job_no), array_agg(state), array_agg({{COMPLETED}}::text),
           array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0))
    FROM gone HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{RUNNING}}, -count(*), 0 FROM gone GROUP BY lane_id
    UNION ALL
    SELECT lane_id, {{COMPLETED}}, count(*), 0 FROM gone GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM gone WHERE mirrored
)
SELECT namespace_id, id, assignee_id FROM gone
