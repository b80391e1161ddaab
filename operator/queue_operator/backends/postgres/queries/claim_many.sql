-- Takes the oldest due jobs for some groups of streams and gives each a lease with a new token.
-- The streams of a group ask for the same lanes; no lane is in two groups. One row at least: the
-- first begins with which groups' jobs were looked at, how many of each, and of which groups a
-- lane was only looked at in part; the rest of it is NULL if nothing was taken.
-- Parameters, groups being numbered from 1: lanes (int[]), of which group each is: lane_groups
--   (int[]), how many to look at in it: depths (int[]), where to start: marks (timestamptz[]) and
--   mark_numbers (bigint[]), and the defaults of the lane's type: default_attempts (int[]),
--   default_timeouts (float8[]). By group: reaches, how many to look at;
--   offsets, where its part of slot_of begins (int[]). most: how many to take in all; only of
--   one group alone may more be looked at than it has room for.
--   assignees, workers, hosts (text[], one entry per stream) and slot_of (int[], as long
--   as all rooms: which stream the n-th job of a group goes to); ttl_s (NULL: never expires);
--   chances (bigint[], aligned with slot_of: the random half of a job's token); system_attempts,
--   system_backoff: for what neither the job nor its type says.
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
--   What was looked at is told with the first job of a group: the client would unpack it again
--   with each.
WITH seen AS MATERIALIZED (
    SELECT r.spot, r.job_no, r.order_time, l.g, r.place = l.depth AS is_last
    FROM unnest(%(lanes)s::int[], %(marks)s::timestamptz[], %(mark_numbers)s::bigint[],
                %(lane_groups)s::int[], %(depths)s::int[])
        AS l(lane_id, mark, mark_no, g, depth)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = l.lane_id AND (order_time, job_no) >= (l.mark, l.mark_no)
        ORDER BY order_time, job_no LIMIT l.depth
    ) r
), heads AS MATERIALIZED (
    SELECT spot, g
    FROM (
        SELECT spot, g, is_last, row_number() OVER in_order AS place,
               count(*) FILTER (WHERE is_last) OVER in_order AS ended
        FROM seen
        WINDOW in_order AS (PARTITION BY g ORDER BY order_time, job_no ROWS UNBOUNDED PRECEDING)
    ) ranked
    WHERE ended <= is_last::int AND place <= ((SELECT %(reaches)s::int[]))[g]
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
    SELECT job_no, lane_id, place, state, order_time, created_at, eligible_at,
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
                    SELECT *, array_position((SELECT %(lanes)s::int[]), lane_id) AS l FROM removed
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
SELECT CASE WHEN r.place > 1 THEN NULL ELSE ARRAY(SELECT g FROM looked ORDER BY g) END,
       CASE WHEN r.place > 1 THEN NULL ELSE ARRAY(SELECT jobs FROM looked ORDER BY g) END,
       CASE WHEN r.place > 1 THEN NULL ELSE ARRAY(SELECT DISTINCT g FROM seen WHERE is_last) END,
       r.*
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (
    SELECT taken.job_no, taken.lane_id, taken.order_time, taken.attempt, taken.token::text,
           taken.assignee_id, taken.timeout_s, job.id, job.payload, job.content_type,
           job.created_at, job.correlation_id, taken.eligible_at, now(), parent.result,
           parent.content_type AS result_content_type, kept.data AS checkpoint, taken.retry_count,
           taken.last_retry_at, coalesce(taken.started_at, now()), taken.place
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
