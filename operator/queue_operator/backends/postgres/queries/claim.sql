-- Takes the oldest due jobs of some lanes for streams that all ask for the same, as most claims
-- do: `claim_many.sql` in short. Gives each a lease with a new token. One row at
-- least: it begins with how many jobs were looked at and whether a lane was only looked at in part;
-- the rest of it is NULL if nothing was taken.
-- Parameters: lanes (int[]), where to start in each lane: marks (timestamptz[]) and
--   mark_numbers (bigint[]), and the defaults of the lane's type: default_attempts (int[]),
--   default_timeouts (float8[]); per_lane: how many to look at in each lane; reach: how many to
--   look at in all; slots: how many to take;
--   assignees, workers, hosts (text[], one entry per stream) and slot_of (int[], as long
--   as slots: which stream the n-th job goes to); ttl_s (NULL: never expires); chances (bigint[],
--   as long as slots: the random half of the n-th job's token); system_attempts, system_backoff:
--   for what neither the job nor its type says.
-- Index: ready_claim, one range per lane; job_pkey; parent_result_pkey; checkpoint_pkey.
--   Locks: the rows taken;
--   rows another claimer holds are skipped, so a claim may come back with fewer than it looked at.
-- Traps: looking at a lane must stop at its limit, hence the LATERAL; the marks keep it from
--   walking the dead entries of rows taken before. Where a lane may hold more than was looked
--   at, nothing beyond its last one seen is taken, or a younger job would pass an older one.
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
    SELECT r.spot, r.job_no, r.order_time, r.place
    FROM unnest(%(lanes)s::int[], %(marks)s::timestamptz[], %(mark_numbers)s::bigint[])
        AS l(lane_id, mark, mark_no)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = l.lane_id AND (order_time, job_no) >= (l.mark, l.mark_no)
        ORDER BY order_time, job_no LIMIT %(per_lane)s
    ) r
), heads AS MATERIALIZED (
    SELECT spot FROM seen
    WHERE ((order_time, job_no) <= (
        SELECT order_time, job_no FROM seen WHERE place = %(per_lane)s
        ORDER BY order_time, job_no LIMIT 1
    )) IS NOT FALSE
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
               array_position((SELECT %(lanes)s::int[]), lane_id) AS l
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
           now() + make_interval(secs => %(ttl_s)s), now() + make_interval(secs => timeout_s)
    FROM resolved
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
SELECT looked.jobs, looked.cut_off, NULL, r.*
FROM (
    SELECT (SELECT count(*) FROM heads) AS jobs,
           EXISTS (SELECT FROM seen WHERE place = %(per_lane)s) AS cut_off
) looked
LEFT JOIN (
    SELECT taken.job_no, taken.lane_id, taken.order_time, taken.attempt, taken.token::text,
           taken.assignee_id, taken.timeout_s, job.id, job.payload, job.content_type,
           job.created_at, job.correlation_id, taken.eligible_at, now(), parent.result,
           parent.content_type AS result_content_type, kept.data AS checkpoint, taken.retry_count,
           taken.last_retry_at, coalesce(taken.started_at, now())
    FROM resolved taken
    CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = taken.job_no LIMIT 1) job
    LEFT JOIN LATERAL (
        SELECT * FROM parent_result given
        WHERE job.dependency_mode = 'CHAIN' AND given.job_no = taken.job_no LIMIT 1
    ) parent ON true
    LEFT JOIN LATERAL (
        SELECT data FROM checkpoint
        WHERE taken.checkpointed AND checkpoint.job_no = taken.job_no LIMIT 1
    ) kept ON true
) r ON true
