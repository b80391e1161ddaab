-- Takes the oldest due jobs of some lanes for streams that all ask for the same, as most claims
-- do: `claim_many.sql` in short. Gives each a lease with a new token. One row at
-- least: the first begins with how many jobs were looked at and whether more may be there than were
-- looked at, then, aligned, of each range that holds anything its number, how many of its
-- jobs were looked at, and the place of the first that was not taken (NULL: none); the rest of a row
-- is NULL if nothing was taken.
-- Parameters: ranges, numbered from 1: lanes (int[]), froms (timestamptz[]) and from_nos
--   (bigint[]), tos and to_nos, both ends included; bound (timestamptz) and bound_no: only jobs
--   before that place are taken; lane_ids (int[], ascending) and, aligned with them, the defaults
--   of the lane's type: default_attempts (int[]), default_timeouts (float8[]);
--   per_lane: how many to look at in each range; reach: how many to
--   look at in all; slots: how many to take;
--   assignees, workers, hosts (text[], one entry per stream) and slot_of (int[], as long
--   as slots: which stream the n-th job goes to); ttl_s (NULL: never expires); chances (bigint[],
--   as long as slots: the random half of the n-th job's token); system_attempts, system_backoff:
--   for what neither the job nor its type says.
-- Index: ready_claim, once per range; job_pkey; parent_result_pkey; checkpoint_pkey.
--   Locks: the rows taken;
--   rows another claimer holds are skipped, so a claim may come back with fewer than it looked at.
-- Traps: looking at a range must stop at its limit, hence the LATERAL; the ranges keep it from
--   walking the dead entries of rows taken before. Where a range may hold more than was looked
--   at, nothing beyond its last one seen is taken, or a younger job would pass an older one; nor
--   beyond the bound, where a lane that is not asked may hold one.
--   Two CTEs are never joined with each other: without hash joins that would take the square
--   of the batch. So would a parameter whose cast is done anew for every row, hence the scalar
--   subqueries. Rows are locked and deleted by their place in the table (ctid): what our
--   snapshot sees stays where it is, and a row that moved all the same is not deleted, hence
--   not taken. A plain order to lock them in, or a plain `due`, would let a plan made while the
--   table was empty walk a whole index instead; nobody waits for a lock here.
--   The token is the job's number, by which `complete.sql` finds the lease, and 64 random bits
--   that say nothing of another's. The client draws those of a claim with one system call;
--   gen_random_uuid() would cost one per job.
WITH seen AS MATERIALIZED (
    SELECT r.spot, r.job_no, r.order_time, r.place, g.n
    FROM unnest(%(lanes)s::int[], %(froms)s::timestamptz[], %(from_nos)s::bigint[],
                %(tos)s::timestamptz[], %(to_nos)s::bigint[])
        WITH ORDINALITY AS g(lane_id, at, no, to_at, to_no, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = g.lane_id AND (order_time, job_no) >= (g.at, g.no)
          AND (order_time, job_no) <= (g.to_at, g.to_no)
        ORDER BY order_time, job_no LIMIT %(per_lane)s
    ) r
), heads AS MATERIALIZED (
    SELECT spot FROM seen
    WHERE ((order_time, job_no) <= (
        SELECT order_time, job_no FROM seen WHERE place = %(per_lane)s
        ORDER BY order_time, job_no LIMIT 1
    )) IS NOT FALSE
      AND (order_time, job_no) < (%(bound)s::timestamptz, %(bound_no)s::bigint)
    ORDER BY order_time, job_no LIMIT %(reach)s
), locked AS MATERIALIZED (
    SELECT ctid AS spot FROM ready
    WHERE ctid = ANY (ARRAY(SELECT spot FROM heads)) AND coalesce(due, false)
    ORDER BY order_time + interval '0', job_no LIMIT %(slots)s
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT spot FROM locked))
    RETURNING *
), resolved AS MATERIALIZED (
    SELECT job_no, lane_id, state, order_time, created_at, eligible_at,
           attempt + 1 AS attempt,
           lease_version, transition, retry_count, failure_count,
           CASE WHEN max_attempts = 0
                THEN coalesce(((SELECT %(default_attempts)s::int[]))[l], %(system_attempts)s)
                ELSE max_attempts END AS max_attempts,
           coalesce(timeout_s, ((SELECT %(default_timeouts)s::float8[]))[l]) AS timeout_s,
           CASE WHEN max_attempts = 0 THEN coalesce(backoff, %(system_backoff)s::jsonb)
                ELSE backoff END AS backoff,
           last_retry_at, started_at, error,
           coalesce(failed_at, CASE WHEN error IS NOT NULL THEN changed_at END) AS failed_at,
           mirrored, has_children, checkpointed, result, result_content_type,
           (lpad(to_hex(job_no), 16, '0')
            || lpad(to_hex(chance), 16, '0'))::uuid AS token,
           ((SELECT %(assignees)s::text[]))[s] AS assignee_id,
           ((SELECT %(workers)s::text[]))[s] AS worker_name,
           ((SELECT %(hosts)s::text[]))[s] AS host
    FROM (
        SELECT removed.*,
               ((SELECT %(slot_of)s::int[]))[row_number() OVER (ORDER BY order_time, job_no)] AS s,
               ((SELECT %(chances)s::bigint[]))[
                   row_number() OVER (ORDER BY order_time, job_no)] AS chance,
               width_bucket(lane_id, (SELECT %(lane_ids)s::int[])) AS l
        FROM removed
    ) ranked
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
), {{left}}
SELECT NULL, looked.jobs, looked.cut_off,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT numbers FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT looked FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT nexts FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT next_nos FROM told_ranges) END,
       r.*
FROM (
    SELECT (SELECT count(*) FROM heads) AS jobs,
           EXISTS (SELECT FROM seen
                   WHERE place = %(per_lane)s
                      OR (order_time, job_no) >= (%(bound)s::timestamptz, %(bound_no)s::bigint)
           ) AS cut_off
) looked
LEFT JOIN (
    {{jobs}}
) r ON true
