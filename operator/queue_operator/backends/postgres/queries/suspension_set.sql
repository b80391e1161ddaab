-- Suspends jobs and resumes them; gives the lanes in which some may be claimed now, and the seconds
-- until the next of the others is due, NULL where there is none.
-- Parameters, aligned: job_nos (bigint[]) and ons (bool[]): suspended, or not.
-- Index: suspension_pkey, ready_pkey, job_pkey. Locks: the rows of `suspension`; those of `ready`,
--   which `lock.sql` has locked before in this transaction.
-- Traps: what is so already is not touched, nor is a row that waits for other jobs: it is held when
--   that wait ends. As with that, it becomes eligible now, and not when it was submitted. Without
--   an attempt left it is never due. A plain condition on `job` would let a plan walk an index that
--   is for jobs of resources only.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_nos)s::bigint[], %(ons)s::bool[]) AS g(job_no, is_on)
), noted AS MATERIALIZED (
    INSERT INTO suspension (job_no, is_on)
    SELECT job_no, is_on FROM given
    WHERE is_on
       OR (SELECT is_on FROM suspension WHERE suspension.job_no = given.job_no LIMIT 1)
    ON CONFLICT (job_no) DO UPDATE SET is_on = excluded.is_on, changed_at = excluded.changed_at
    WHERE suspension.is_on <> excluded.is_on
    RETURNING job_no, is_on
), held AS (
    UPDATE ready SET due = false, blocked = NULL
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM noted WHERE is_on)) AND NOT blocked
), waiting AS (
    UPDATE ready
    SET blocked = false,
        due = eligible_at <= clock_timestamp()
              AND (attempt >= nullif(max_attempts, 0)) IS NOT TRUE,
        eligible_at = greatest(eligible_at, now())
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM noted WHERE NOT is_on)) AND blocked IS NULL
    RETURNING job_no, lane_id, order_time, due, eligible_at
), {{arrived}}, told AS (
    INSERT INTO mirror_outbox (job_no)
    SELECT noted.job_no FROM noted
    CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = noted.job_no LIMIT 1) job
    WHERE job.cluster_uid IS NOT NULL
)
SELECT ARRAY(SELECT DISTINCT lane_id FROM waiting WHERE due),
       (SELECT extract(epoch FROM min(eligible_at) - now())::float8 FROM waiting WHERE NOT due)
