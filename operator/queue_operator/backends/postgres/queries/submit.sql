-- Stores jobs; gives their time, the numbers of those whose id was new, and whether the lanes were
-- still sure: nothing is stored otherwise. The caller rolls back
-- and tries again without the others when not all are. In its other form, without {{if_taken}}, it
-- fails then.
-- Parameters: arrays of equal length, one entry per job, sorted by namespace and id, so that
--   two batches with equal ids never wait for each other in a circle; NULL for the array where no
--   job has such a value; numbers reserved before; backoffs as JSON text; bonuses: seconds that the
--   priority makes the job count older;
--   those of {{sure}}; event_correlations (NULL where no job has one), lane_of, event_lanes and
--   event_lane_ids as the submission event carries them.
-- Index: job_namespace_id_id_key. Locks: the new rows.
-- Trap: a time of creation that the submitter gave may be any, so such a job's place is told alone: a
--   claim walks all that is dead between the ends of a range.
WITH certain AS MATERIALIZED (
    SELECT {{sure}} AS is_so
), given AS (
    SELECT g.*, greatest(now(), g.scheduled_at, now() + make_interval(secs => g.delay_s))
               AS eligible_at,
           CASE WHEN g.waits THEN true WHEN g.suspended THEN NULL ELSE false END AS blocked
    FROM unnest(
        %(numbers)s::bigint[], %(namespaces)s::int[], %(ids)s::text[], %(lanes)s::int[],
        %(payloads)b::bytea[], %(content_types)s::text[], %(created)s::timestamptz[],
        %(correlations)s::text[], %(clusters)s::text[], %(names)s::text[],
        %(generations)s::bigint[], %(delays)s::float8[], %(scheduled)s::timestamptz[],
        %(max_attempts)s::int[], %(timeouts)s::float8[], %(backoffs)s::text[],
        %(bonuses)s::float8[], %(modes)s::text[], %(has_children)s::bool[],
        %(blocked)s::bool[], %(suspended)s::bool[], %(traceparents)s::text[], %(tracestates)s::text[]
    ) AS g(
        job_no, namespace_id, id, lane_id, payload, content_type, created_at, correlation_id,
        cluster_uid, resource_name, generation, delay_s, scheduled_at, max_attempts,
        timeout_s, backoff, bonus_s, dependency_mode, has_children, waits,
        suspended, traceparent, tracestate)
    WHERE (SELECT is_so FROM certain)
), stored AS (
    INSERT INTO job (job_no, namespace_id, id, lane_id, payload, content_type, created_at,
                     correlation_id, dependency_mode, cluster_uid, resource_name, generation,
                     traceparent, tracestate)
    SELECT job_no, namespace_id, id, lane_id, payload, content_type,
           coalesce(created_at, now()), correlation_id, dependency_mode, cluster_uid,
           resource_name, generation, traceparent, tracestate
    FROM given
    {{if_taken}}
    RETURNING job_no
), waiting AS (
    INSERT INTO ready (job_no, lane_id, state, order_time, created_at, due, eligible_at, attempt,
                       lease_version, transition, retry_count, failure_count, max_attempts,
                       timeout_s, backoff, assignee_id, worker_name, host, changed_at, mirrored,
                       has_children, blocked)
    SELECT job_no, lane_id, {{INITIAL_PENDING}},
           coalesce(created_at, now()) - make_interval(secs => coalesce(bonus_s, 0)),
           coalesce(created_at, now()),
           eligible_at <= now() AND blocked IS FALSE, eligible_at, 0, 0, 1, 0, 0, max_attempts,
           timeout_s, backoff::jsonb, '', '', '', now(), cluster_uid IS NOT NULL,
           coalesce(has_children, false), blocked
    FROM given
    RETURNING job_no, lane_id, order_time, due, blocked, eligible_at, created_at = now() AS is_new
), arrived AS (
    INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos, due_at)
    SELECT coalesce(array_agg(lane_id) FILTER (WHERE lane_id IS NOT NULL), '{}'),
           coalesce(array_agg(first) FILTER (WHERE lane_id IS NOT NULL), '{}'),
           coalesce(array_agg(first_no) FILTER (WHERE lane_id IS NOT NULL), '{}'),
           coalesce(array_agg(last) FILTER (WHERE lane_id IS NOT NULL), '{}'),
           coalesce(array_agg(last_no) FILTER (WHERE lane_id IS NOT NULL), '{}'), min(due_at)
    FROM (
        SELECT CASE WHEN due THEN lane_id END AS lane_id, min(order_time) AS first,
               min(job_no) AS first_no, max(order_time) AS last, max(job_no) AS last_no,
               min(eligible_at) FILTER (WHERE NOT due) AS due_at
        FROM waiting WHERE NOT blocked
        GROUP BY CASE WHEN due THEN lane_id END, CASE WHEN due AND NOT is_new THEN job_no END
    ) AS places
    HAVING count(*) > 0
), logged AS (
    INSERT INTO job_event (event, to_state, job_nos, ids, correlations, lane_of, lanes, lane_ids)
    SELECT 'SUBMIT', {{INITIAL_PENDING}}, %(numbers)s::bigint[], %(ids)s::text[],
           %(event_correlations)s::text[], %(lane_of)s::int[], %(event_lanes)s::jsonb,
           %(event_lane_ids)s::int[]
    WHERE (SELECT is_so FROM certain)
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
    SELECT lane_id, {{INITIAL_PENDING}}, count(*), 0, count(*) FILTER (WHERE blocked)
    FROM given GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM given WHERE cluster_uid IS NOT NULL
)
SELECT now(), (SELECT array_agg(job_no) FROM stored),
       (SELECT is_so FROM certain)
