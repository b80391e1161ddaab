-- The fast path of an outcome: jobs that run under the given token are completed. What is
-- not among the numbers returned (stale, repeated, cancelling, a job that others wait for, or one
-- with a checkpoint)
-- takes the slow path. The attempt gets no row of its own: `final` says all of it.
-- Parameters: job_nos (bigint[], ascending) and, aligned with them, tokens (uuid[]), starts and
--   lengths (bigint[]) of each result within results (bytea; length -1: none, keeps the old), kinds
--   (bigint[], which of content_types, a text[], it is of).
-- Index: lease_pkey, lane_pkey, and that of {{heard}}. Locks: the lease rows, in order of number.
-- Traps: what belongs to a row is looked up by halving job_nos (`width_bucket`): a join of two
--   batches could be planned as a loop over both, and `token = ANY (…)` would read all of them
--   for each row. The namespace of a row's lane is looked up in the same way: to ask `lane` for each
--   row would cost ten times as much. A parameter's cast is done once in a scalar subquery, not for
--   every row.
WITH gone AS (
    DELETE FROM lease
    WHERE job_no = ANY (%(job_nos)s::bigint[])
      AND token = ((SELECT %(tokens)s::uuid[]))[
              width_bucket(job_no, (SELECT %(job_nos)s::bigint[]))]
      AND state IN ({{RUNNING}}) AND NOT has_children AND NOT checkpointed
    RETURNING *, width_bucket(job_no, (SELECT %(job_nos)s::bigint[])) AS place
), spaces AS MATERIALIZED (
    SELECT array_agg(id) AS lanes, array_agg(namespace_id) AS numbers
    FROM (SELECT id, namespace_id FROM lane
          WHERE id = ANY (ARRAY(SELECT DISTINCT lane_id FROM gone)) ORDER BY id) AS theirs
), finished AS (
    INSERT INTO final (job_no, lane_id, namespace_id, state, order_time, created_at, eligible_at,
                       attempt, lease_version,
                       transition, retry_count, failure_count, max_attempts, timeout_s, backoff,
                       last_retry_at, token, assignee_id, worker_name, host, assigned_at,
                       started_at, error, failed_at, changed_at, mirrored, has_children, result,
                       result_content_type, finalized_at, reason)
    SELECT job_no, lane_id,
           ((SELECT numbers FROM spaces))[width_bucket(lane_id, (SELECT lanes FROM spaces))],
           {{COMPLETED}}, order_time, created_at, eligible_at, attempt,
           lease_version,
           transition + 1, retry_count, failure_count, max_attempts, timeout_s, backoff,
           last_retry_at, token, assignee_id, worker_name, host, assigned_at, started_at, error,
           coalesce(failed_at, CASE WHEN error IS NOT NULL THEN changed_at END), now(), mirrored,
           has_children,
           CASE WHEN ((SELECT %(lengths)s::bigint[]))[place] >= 0 THEN
               substring((SELECT %(results)s::bytea)
                         FROM ((SELECT %(starts)s::bigint[]))[place]::int
                         FOR ((SELECT %(lengths)s::bigint[]))[place]::int)
                ELSE result END,
           CASE WHEN ((SELECT %(lengths)s::bigint[]))[place] >= 0
                THEN ((SELECT %(content_types)s::text[]))[((SELECT %(kinds)s::bigint[]))[place]]
                ELSE result_content_type END,
           now(), 'COMPLETE'
    FROM gone
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, run_us, lane_ids, untold)
    SELECT 'COMPLETE', {{RUNNING}}, {{COMPLETED}}, array_agg(job_no), array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - assigned_at) * 1000000)::bigint, 0)),
           array_agg(lane_id), NULL
    FROM gone HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{RUNNING}}, -count(*), 0 FROM gone GROUP BY lane_id
    UNION ALL
    SELECT lane_id, {{COMPLETED}}, count(*), 0 FROM gone GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM gone WHERE mirrored
), ended AS MATERIALIZED (
    SELECT {{COMPLETED}} AS state, array_agg(job_no) AS nos, array_agg(attempt) AS attempts
    FROM (SELECT job_no, attempt FROM gone ORDER BY job_no) AS those
), {{heard}}
SELECT job_no, assignee_id FROM gone
