-- Part of others: gives each job that a claim took a lease with a new token, and says so: to the
-- sweeper, the log, the counts and the mirror. `resolved` has the jobs.
-- Parameters: by lane the defaults of its type: default_attempts (int[]), default_timeouts
--   (float8[]); by stream: assignees, workers, hosts (text[]); system_attempts, system_backoff: for
--   what neither the job nor its type says; ttl_s (NULL: never expires). It reads `dealt`: the rows
--   that were taken out of `ready`, each with lane_at and stream_at, its places in these arrays, and
--   with chance, the random half of its token.
-- Index: none. Locks: the new rows.
-- Traps: a parameter whose cast is done anew for every row would take the square of the batch, hence
--   the scalar subqueries.
--   The token is the job's number, by which `complete.sql` finds the lease, and 64 random bits
--   that say nothing of another's. The client draws those of a claim with one system call;
--   gen_random_uuid() would cost one per job.
resolved AS MATERIALIZED (
    SELECT job_no, lane_id, state, order_time, created_at, eligible_at,
           attempt + 1 AS attempt,
           lease_version, transition, retry_count, failure_count,
           CASE WHEN max_attempts = 0
                THEN coalesce(((SELECT %(default_attempts)s::int[]))[lane_at], %(system_attempts)s)
                ELSE max_attempts END AS max_attempts,
           coalesce(timeout_s, ((SELECT %(default_timeouts)s::float8[]))[lane_at]) AS timeout_s,
           CASE WHEN max_attempts = 0 THEN coalesce(backoff, %(system_backoff)s::jsonb)
                ELSE backoff END AS backoff,
           last_retry_at, started_at, error,
           coalesce(failed_at, CASE WHEN error IS NOT NULL THEN changed_at END) AS failed_at,
           mirrored, has_children, checkpointed, result, result_content_type,
           (lpad(to_hex(job_no), 16, '0')
            || lpad(to_hex(chance), 16, '0'))::uuid AS token,
           ((SELECT %(assignees)s::text[]))[stream_at] AS assignee_id,
           ((SELECT %(workers)s::text[]))[stream_at] AS worker_name,
           ((SELECT %(hosts)s::text[]))[stream_at] AS host
    FROM dealt
), leased AS (
    INSERT INTO lease (job_no, lane_id, state, order_time, created_at, eligible_at, attempt,
                       lease_version,
                       transition, retry_count, failure_count, max_attempts, timeout_s, backoff,
                       last_retry_at, token, assignee_id, worker_name, host, assigned_at,
                       started_at, error, failed_at, changed_at, mirrored, has_children,
                       checkpointed, result, result_content_type, expires_at, deadline)
    SELECT job_no, lane_id, {{RUNNING}}, order_time, created_at, eligible_at, attempt,
           lease_version + 1, transition + 1, retry_count, failure_count, max_attempts,
           timeout_s, backoff, last_retry_at, token, assignee_id, worker_name, host, now(),
           coalesce(started_at, now()), error, failed_at, now(), mirrored,
           has_children, checkpointed, result, result_content_type,
           now() + make_interval(secs => %(ttl_s)s::float8), now() + make_interval(secs => timeout_s)
    FROM resolved
), checked AS (
    -- The sweeper looks at a lease when it runs out, and at its execution timeout; at one without
    -- an end now and then, in case it is gone.
    INSERT INTO lease_check (kind, look_at, leases, assignees)
    SELECT CASE WHEN %(ttl_s)s::float8 IS NULL THEN 'HELD' ELSE 'CLAIM' END,
           now() + make_interval(secs => coalesce(%(ttl_s)s::float8, 3600)),
           array_agg((job_no << 16) | ((lease_version + 1) & 65535)),
           array_agg(DISTINCT hashtext(assignee_id))
    FROM resolved HAVING count(*) > 0
    UNION ALL
    SELECT 'DEADLINE', now() + make_interval(secs => timeout_s),
           array_agg((job_no << 16) | ((lease_version + 1) & 65535)), NULL
    FROM resolved WHERE timeout_s IS NOT NULL GROUP BY timeout_s
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, wait_us, workers,
                           lane_ids)
    SELECT 'CLAIM', state, {{RUNNING}}, array_agg(job_no), array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - eligible_at) * 1000000)::bigint, 0)),
           array_agg(coalesce(nullif(worker_name, ''), assignee_id)), array_agg(lane_id)
    FROM resolved GROUP BY state
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, state, -count(*), 0 FROM resolved GROUP BY lane_id, state
    UNION ALL
    SELECT lane_id, {{RUNNING}}, count(*), 0 FROM resolved GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM resolved WHERE mirrored
)
