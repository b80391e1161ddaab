-- Takes the oldest due jobs of some lanes and gives each a lease with a new token.
-- Parameters and answer: as the product's claim.sql. Index: job_claim, one range per lane;
--   parent_result_pkey. Locks: the rows taken; rows another claimer holds are skipped.
-- Traps: those of claim.sql. The rows are found by their place in the table, not by a join with
--   what was locked, which could be planned as a loop over both; hence the stream of each is
--   looked up by halving an array of numbers. OLD in RETURNING needs PostgreSQL 18. The random half
--   of a token is drawn here, and cheaply: nobody has to keep these secret.
WITH seen AS MATERIALIZED (
    SELECT r.spot, r.job_no, r.order_time, r.place, g.n
    FROM unnest(%(lanes)s::int[], %(froms)s::timestamptz[], %(from_nos)s::bigint[],
                %(tos)s::timestamptz[], %(to_nos)s::bigint[])
        WITH ORDINALITY AS g(lane_id, at, no, to_at, to_no, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM job
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
    SELECT ctid AS spot, job_no, order_time FROM job
    WHERE ctid = ANY (ARRAY(SELECT spot FROM heads)) AND coalesce(due, false)
    ORDER BY order_time + interval '0', job_no LIMIT %(slots)s
    FOR UPDATE SKIP LOCKED
), spread AS MATERIALIZED (
    SELECT array_agg(job_no ORDER BY job_no) AS numbers, array_agg(slot ORDER BY job_no) AS slots
    FROM (
        SELECT job_no, ((SELECT %(slot_of)s::int[]))[
                   row_number() OVER (ORDER BY order_time, job_no)] AS slot
        FROM locked
    ) ranked
), taken AS MATERIALIZED (
    UPDATE job
    SET state = {{RUNNING}}, due = NULL, apart_at = NULL, attempt = attempt + 1,
        lease_version = lease_version + 1, transition = transition + 1,
        max_attempts = CASE WHEN max_attempts = 0
            THEN coalesce(
                ((SELECT %(default_attempts)s::int[]))[
                    width_bucket(lane_id, (SELECT %(lane_ids)s::int[]))],
                %(system_attempts)s)
            ELSE max_attempts END,
        timeout_s = coalesce(timeout_s, ((SELECT %(default_timeouts)s::float8[]))[
            width_bucket(lane_id, (SELECT %(lane_ids)s::int[]))]),
        backoff = CASE WHEN max_attempts = 0 THEN coalesce(backoff, %(system_backoff)s::jsonb)
            ELSE backoff END,
        token = (lpad(to_hex(job_no), 16, '0')
            || lpad(to_hex(hashint8extended(job_no, (SELECT (random() * 9e18)::bigint))), 16, '0'))::uuid,
        assignee_id = ((SELECT %(assignees)s::text[]))[((SELECT slots FROM spread))[
            width_bucket(job_no, (SELECT numbers FROM spread))]],
        worker_name = ((SELECT %(workers)s::text[]))[((SELECT slots FROM spread))[
            width_bucket(job_no, (SELECT numbers FROM spread))]],
        host = ((SELECT %(hosts)s::text[]))[((SELECT slots FROM spread))[
            width_bucket(job_no, (SELECT numbers FROM spread))]],
        assigned_at = now(), started_at = coalesce(started_at, now()), changed_at = now(),
        expires_at = now() + make_interval(secs => %(ttl_s)s::float8),
        deadline = now() + make_interval(secs => coalesce(timeout_s,
            ((SELECT %(default_timeouts)s::float8[]))[
                width_bucket(lane_id, (SELECT %(lane_ids)s::int[]))]))
    WHERE ctid = ANY (ARRAY(SELECT spot FROM locked))
    RETURNING old.state AS before, job_no, lane_id, order_time, attempt, lease_version, token, assignee_id,
        worker_name, timeout_s, id, payload, content_type, created_at, correlation_id,
        dependency_mode, eligible_at, mirrored, retry_count, last_retry_at, started_at,
        error ->> 'code' AS error_code, traceparent, tracestate
), checked AS (
    INSERT INTO lease_check (kind, look_at, leases, assignees)
    SELECT CASE WHEN %(ttl_s)s::float8 IS NULL THEN 'HELD' ELSE 'CLAIM' END,
           now() + make_interval(secs => coalesce(%(ttl_s)s::float8, 3600)),
           array_agg((job_no << 16) | (lease_version & 65535)),
           array_agg(DISTINCT hashtext(assignee_id))
    FROM taken HAVING count(*) > 0
    UNION ALL
    SELECT 'DEADLINE', now() + make_interval(secs => timeout_s),
           array_agg((job_no << 16) | (lease_version & 65535)), NULL
    FROM taken WHERE timeout_s IS NOT NULL GROUP BY timeout_s
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, wait_us, workers,
                           lane_ids)
    SELECT 'CLAIM', before, {{RUNNING}}, array_agg(job_no), array_agg(attempt),
           array_agg(greatest((extract(epoch FROM now() - eligible_at) * 1000000)::bigint, 0)),
           array_agg(coalesce(nullif(worker_name, ''), assignee_id)), array_agg(lane_id)
    FROM taken GROUP BY before
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, before, -count(*), 0 FROM taken GROUP BY lane_id, before
    UNION ALL
    SELECT lane_id, {{RUNNING}}, count(*), 0 FROM taken GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM taken WHERE mirrored
), left_over AS (
    SELECT n, count(*)::int AS jobs,
           (array_agg(order_time ORDER BY place) FILTER (WHERE NOT is_taken))[1] AS next,
           (array_agg(job_no ORDER BY place) FILTER (WHERE NOT is_taken))[1] AS next_no
    FROM (
        SELECT n, order_time, job_no, place,
               coalesce(job_no IN (SELECT job_no FROM taken), false) AS is_taken
        FROM seen
    ) AS judged
    GROUP BY n
), told_ranges AS MATERIALIZED (
    SELECT array_agg(n::int) AS numbers, array_agg(jobs) AS looked, array_agg(next) AS nexts,
           array_agg(next_no) AS next_nos
    FROM left_over
)
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
    SELECT taken.job_no, taken.lane_id, taken.order_time, taken.attempt, taken.token::text,
           taken.assignee_id, taken.timeout_s, taken.id, taken.payload, taken.content_type,
           taken.created_at, taken.correlation_id, taken.eligible_at, now(), parent.result,
           parent.content_type AS result_content_type, NULL::bytea AS checkpoint,
           taken.retry_count, taken.last_retry_at, taken.started_at, taken.error_code,
           taken.traceparent, taken.tracestate,
           row_number() OVER (ORDER BY taken.order_time, taken.job_no) AS nth
    FROM taken
    LEFT JOIN LATERAL (
        SELECT * FROM parent_result given
        WHERE taken.dependency_mode = 'CHAIN' AND given.job_no = taken.job_no LIMIT 1
    ) parent ON true
) r ON true
ORDER BY r.nth
