-- Takes the oldest due jobs of some lanes and gives each a lease with a new token.
-- Parameters: lanes (int[]), where to start in each lane: marks (timestamptz[]) and
--   mark_numbers (bigint[]), and the defaults of the lane's type: default_attempts (int[]),
--   default_timeouts (float8[]); per_lane: how many to look at in each lane; slots: how many to
--   take; assignees, workers, hosts (text[], one entry per stream) and slot_of (int[], as long
--   as slots: which stream the n-th job goes to); ttl_s (NULL: never expires); seed: random
--   text of this claim, from which the tokens are made; system_attempts, system_backoff: for
--   what neither the job nor its type says.
-- Index: ready_claim, one range per lane; ready_pkey. Locks: the rows taken; rows another
--   claimer holds are skipped, so a claim may come back short while jobs are there.
-- Traps: looking at a lane must stop at its limit, hence the LATERAL; the marks keep it from
--   walking the dead entries of rows taken before. Where a lane may hold more than was looked
--   at, nothing beyond its last one seen is taken, or a younger job would pass an older one.
--   Two CTEs are never joined with each other: without hash joins that would take the square
--   of the batch. So would a parameter whose cast is done anew for every row, hence the scalar
--   subqueries. gen_random_uuid() would cost a system call per job.
WITH seen AS MATERIALIZED (
    SELECT r.job_no, r.order_time, r.place
    FROM unnest(%(lanes)s::int[], %(marks)s::timestamptz[], %(mark_numbers)s::bigint[])
        AS l(lane_id, mark, mark_no)
    CROSS JOIN LATERAL (
        SELECT job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = l.lane_id AND (order_time, job_no) >= (l.mark, l.mark_no)
        ORDER BY order_time, job_no LIMIT %(per_lane)s
    ) r
), heads AS MATERIALIZED (
    SELECT job_no FROM seen
    WHERE ((order_time, job_no) <= (
        SELECT order_time, job_no FROM seen WHERE place = %(per_lane)s
        ORDER BY order_time, job_no LIMIT 1
    )) IS NOT FALSE
    ORDER BY order_time, job_no LIMIT %(slots)s
), locked AS MATERIALIZED (
    SELECT ready.job_no FROM ready
    WHERE ready.job_no = ANY (ARRAY(SELECT job_no FROM heads)) AND due
    ORDER BY ready.job_no FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM ready WHERE job_no = ANY (ARRAY(SELECT job_no FROM locked)) RETURNING *
), ranked AS MATERIALIZED (
    SELECT taken.*,
           ((SELECT %(slot_of)s::int[]))[row_number() OVER (ORDER BY order_time, job_no)] AS s,
           array_position((SELECT %(lanes)s::int[]), lane_id) AS l
    FROM taken
), resolved AS MATERIALIZED (
    SELECT ranked.*, ((SELECT %(assignees)s::text[]))[s] AS new_assignee,
           ((SELECT %(workers)s::text[]))[s] AS new_worker, ((SELECT %(hosts)s::text[]))[s] AS new_host,
           CASE WHEN max_attempts = 0
                THEN coalesce(((SELECT %(default_attempts)s::int[]))[l], %(system_attempts)s)
                ELSE max_attempts END AS new_max_attempts,
           CASE WHEN max_attempts = 0 THEN coalesce(backoff, %(system_backoff)s::jsonb)
                ELSE backoff END AS new_backoff,
           coalesce(timeout_s, ((SELECT %(default_timeouts)s::float8[]))[l]) AS new_timeout
    FROM ranked
), leased AS (
    INSERT INTO lease (job_no, lane_id, state, order_time, eligible_at, attempt, lease_version,
                       transition, retry_count, failure_count, max_attempts, timeout_s, backoff,
                       last_retry_at, token, assignee_id, worker_name, host, assigned_at,
                       started_at, error, changed_at, mirrored, expires_at, deadline)
    SELECT job_no, lane_id, {{RUNNING}}, order_time, eligible_at, attempt + 1,
           lease_version + 1, transition + 1, retry_count, failure_count, new_max_attempts,
           new_timeout, new_backoff, last_retry_at, 
           encode(substring(sha256((%(seed)s || job_no)::bytea), 1, 16), 'hex')::uuid, new_assignee, new_worker,
           new_host, now(), coalesce(started_at, now()), error, now(), mirrored,
           now() + make_interval(secs => %(ttl_s)s), now() + make_interval(secs => new_timeout)
    FROM resolved
    RETURNING *
), logged AS (
    INSERT INTO job_event (event, job_nos, from_states, to_states, attempts, wait_us, workers)
    SELECT 'CLAIM', array_agg(job_no), array_agg(state), array_agg({{RUNNING}}::text),
           array_agg(attempt + 1),
           array_agg(greatest((extract(epoch FROM now() - eligible_at) * 1000000)::bigint, 0)),
           array_agg(coalesce(nullif(new_worker, ''), new_assignee))
    FROM resolved HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, state, -count(*), 0 FROM resolved GROUP BY lane_id, state
    UNION ALL
    SELECT lane_id, {{RUNNING}}, count(*), 0 FROM resolved GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM resolved WHERE mirrored
)
SELECT leased.job_no, leased.lane_id, leased.order_time, leased.attempt, leased.token::text,
       leased.assignee_id, leased.timeout_s, job.id, job.payload, job.content_type,
       job.created_at, job.correlation_id, leased.eligible_at, leased.assigned_at
FROM leased
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = leased.job_no LIMIT 1) job
