-- Takes the oldest due jobs for some groups of streams and gives each a lease with a new token.
-- The streams of a group ask for the same lanes; no lane is in two groups. One row at least: the
-- first begins with which groups' jobs were looked at, how many of each, and in which groups more may
-- be there than were looked at; then, of the ranges, as in `claim.sql`; the rest of it is NULL if
-- nothing was taken.
-- Parameters: ranges, as in `claim.sql`, and how many to look at in each: depths (int[]); groups being
--   numbered from 1, of which group each is: range_groups (int[]); lane_ids (int[], ascending) and,
--   aligned with them, lane_groups (int[]) and the defaults of the lane's type: default_attempts
--   (int[]), default_timeouts (float8[]). By group: reaches, how many to look at;
--   bounds (timestamptz[]) and bound_nos (bigint[]): only jobs before that place are taken;
--   offsets, where its part of slot_of begins (int[]). most: how many to take in all; only of
--   one group alone may more be looked at than it has room for.
--   assignees, workers, hosts (text[], one entry per stream) and slot_of (int[], as long
--   as all rooms: which stream the n-th job of a group goes to); ttl_s (NULL: never expires);
--   chances (bigint[], aligned with slot_of: the random half of a job's token); system_attempts,
--   system_backoff: for what neither the job nor its type says.
-- Index: ready_claim, once per range; job_pkey; parent_result_pkey; checkpoint_pkey.
--   Locks: the rows taken;
--   rows another claimer holds are skipped, so a claim may come back with fewer than it looked at.
-- Traps: as in `claim.sql`.
--   What was looked at is told with the first job: the client would unpack it again with each.
WITH seen AS MATERIALIZED (
    SELECT r.spot, r.job_no, r.order_time, r.place, l.n, l.g, r.place = l.depth AS is_last
    FROM unnest(%(lanes)s::int[], %(froms)s::timestamptz[], %(from_nos)s::bigint[],
                %(tos)s::timestamptz[], %(to_nos)s::bigint[], %(range_groups)s::int[],
                %(depths)s::int[])
        WITH ORDINALITY AS l(lane_id, at, no, to_at, to_no, g, depth, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = l.lane_id AND (order_time, job_no) >= (l.at, l.no)
          AND (order_time, job_no) <= (l.to_at, l.to_no)
        ORDER BY order_time, job_no LIMIT l.depth
    ) r
), ranked AS MATERIALIZED (
    SELECT spot, g, is_last, row_number() OVER in_order AS place,
           count(*) FILTER (WHERE is_last) OVER in_order AS ended,
           (order_time, job_no) < (((SELECT %(bounds)s::timestamptz[]))[g],
                                   ((SELECT %(bound_nos)s::bigint[]))[g]) AS is_near
    FROM seen
    WINDOW in_order AS (PARTITION BY g ORDER BY order_time, job_no ROWS UNBOUNDED PRECEDING)
), heads AS MATERIALIZED (
    SELECT spot, g FROM ranked
    WHERE is_near AND ended <= is_last::int AND place <= ((SELECT %(reaches)s::int[]))[g]
), locked AS MATERIALIZED (
    SELECT ctid AS spot FROM ready
    WHERE ctid = ANY (ARRAY(SELECT spot FROM heads)) AND coalesce(due, false)
    ORDER BY order_time + interval '0', job_no LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
), looked AS MATERIALIZED (
    SELECT g, count(*)::int AS jobs FROM heads GROUP BY g
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
        SELECT placed.*,
               ((SELECT %(slot_of)s::int[]))[((SELECT %(offsets)s::int[]))[g] + place] AS s,
               ((SELECT %(chances)s::bigint[]))[((SELECT %(offsets)s::int[]))[g] + place] AS chance
        FROM (
            SELECT found.*,
                   row_number() OVER (PARTITION BY g ORDER BY order_time, job_no) AS place
            FROM (
                SELECT known.*, ((SELECT %(lane_groups)s::int[]))[l] AS g
                FROM (
                    SELECT *, width_bucket(lane_id, (SELECT %(lane_ids)s::int[])) AS l
                    FROM removed
                ) known
            ) found
        ) placed
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
SELECT CASE WHEN r.nth > 1 THEN NULL ELSE ARRAY(SELECT g FROM looked ORDER BY g) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE ARRAY(SELECT jobs FROM looked ORDER BY g) END,
       CASE WHEN r.nth > 1 THEN NULL
            ELSE ARRAY(SELECT DISTINCT g FROM ranked WHERE is_last OR NOT is_near) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT numbers FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT looked FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT nexts FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT next_nos FROM told_ranges) END,
       r.*
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (
    {{jobs}}
) r ON true
