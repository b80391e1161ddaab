-- Deletes jobs that have ended, with their history; the log keeps its events and gets one more.
-- Of those that came from custom resources a tombstone stays.
-- Parameters: job_nos (bigint[]). Index: the primary keys. Locks: the rows deleted.
WITH gone AS (
    DELETE FROM final WHERE job_no = ANY (%(job_nos)s::bigint[])
    RETURNING job_no, lane_id, state, attempt, retry_count, transition, finalized_at, error_category
), jobs AS (
    DELETE FROM job WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
    RETURNING job_no, id, cluster_uid, created_at
), buried AS (
    INSERT INTO tombstone (uid, state, permanent, transition, attempt, created_at, finalized_at)
    SELECT jobs.id, gone.state, coalesce(gone.error_category = 'PERMANENT', false),
           gone.transition, gone.attempt, jobs.created_at, gone.finalized_at
    FROM jobs JOIN gone ON gone.job_no = jobs.job_no
    WHERE jobs.cluster_uid IS NOT NULL
    ON CONFLICT (uid) DO NOTHING
), attempts AS (
    DELETE FROM attempt WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), transitions AS (
    DELETE FROM transition WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), keys AS (
    DELETE FROM idempotency WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), waits AS (
    DELETE FROM dependency WHERE child_no = ANY (ARRAY(SELECT job_no FROM gone))
), inheritances AS (
    DELETE FROM parent_result WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), births AS (
    DELETE FROM spawned WHERE child_no = ANY (ARRAY(SELECT job_no FROM gone))
), callbacks AS (
    DELETE FROM callback WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), logs AS (
    DELETE FROM log_chunk WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), suspensions AS (
    DELETE FROM suspension WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), detachments AS (
    DELETE FROM detached WHERE job_no = ANY (ARRAY(SELECT job_no FROM gone))
), logged AS (
    INSERT INTO job_event (event, from_state, job_nos, attempts, lane_ids)
    SELECT 'DELETE', state, array_agg(job_no), array_agg(attempt), array_agg(lane_id)
    FROM gone GROUP BY state
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, state, -count(*), -sum(retry_count) FROM gone GROUP BY lane_id, state
)
SELECT count(*)::int FROM gone
