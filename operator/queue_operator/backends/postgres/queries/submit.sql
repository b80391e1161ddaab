-- Stores jobs; gives the numbers of those whose id was new. The caller rolls back and tries
-- again without the others when not all are.
-- Parameters: arrays of equal length, one entry per job, numbers reserved before; backoffs as
--   JSON text; bonuses: seconds that the priority makes the job count older; event_details:
--   what the submission event carries, a JSON array in the same order.
-- Index: job_namespace_id_id_key. Locks: the new rows.
WITH given AS (
    SELECT g.*, greatest(now(), g.scheduled_at, now() + make_interval(secs => g.delay_s))
               AS eligible_at
    FROM unnest(
        %(numbers)s::bigint[], %(namespaces)s::int[], %(ids)s::text[], %(lanes)s::int[],
        %(payloads)s::bytea[], %(content_types)s::text[], %(created)s::timestamptz[],
        %(correlations)s::text[], %(clusters)s::text[], %(names)s::text[],
        %(generations)s::bigint[], %(delays)s::float8[], %(scheduled)s::timestamptz[],
        %(max_attempts)s::int[], %(timeouts)s::float8[], %(backoffs)s::text[],
        %(bonuses)s::float8[]
    ) AS g(
        job_no, namespace_id, id, lane_id, payload, content_type, created_at, correlation_id,
        cluster_uid, resource_name, generation, delay_s, scheduled_at, max_attempts,
        timeout_s, backoff, bonus_s)
), stored AS (
    INSERT INTO job (job_no, namespace_id, id, lane_id, payload, content_type, created_at,
                     correlation_id, cluster_uid, resource_name, generation)
    SELECT job_no, namespace_id, id, lane_id, payload, content_type,
           coalesce(created_at, now()), correlation_id, cluster_uid, resource_name, generation
    FROM given
    ON CONFLICT (namespace_id, id) DO NOTHING
    RETURNING job_no
), waiting AS (
    INSERT INTO ready (job_no, lane_id, state, order_time, due, eligible_at, attempt,
                       lease_version, transition, retry_count, failure_count, max_attempts,
                       timeout_s, backoff, assignee_id, worker_name, host, changed_at, mirrored)
    SELECT job_no, lane_id, {{INITIAL_PENDING}},
           coalesce(created_at, now()) - make_interval(secs => bonus_s),
           eligible_at <= now(), eligible_at, 0, 0, 1, 0, 0, max_attempts,
           timeout_s, backoff::jsonb, '', '', '', now(), cluster_uid IS NOT NULL
    FROM given
), logged AS (
    INSERT INTO job_event (event, job_nos, from_states, to_states, attempts, submitted)
    SELECT 'SUBMIT', %(numbers)s::bigint[], '{}',
           array_fill({{INITIAL_PENDING}}::text, ARRAY[cardinality(%(numbers)s::bigint[])]),
           array_fill(0, ARRAY[cardinality(%(numbers)s::bigint[])]), %(event_details)s::jsonb
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{INITIAL_PENDING}}, count(*), 0 FROM given GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM given WHERE cluster_uid IS NOT NULL
)
SELECT job_no FROM stored
