-- Stores the newest progress of many running attempts.
-- Parameters, aligned by position, no (namespace, id, token) twice: namespaces text[],
-- job_ids text[], tokens uuid[], percents integer[], messages text[], updated_ats timestamptz[].
-- Index: job's unique (namespace_id, id), lease's primary key; no index is on what changes.
-- Locks: the leases in the order of their number, so that it never waits in a circle with
-- another batch; a lease that ended while it waited is left out.
-- A token is current only while its lease exists, so the token is all that is checked.
-- Trap: a plan from when `lease` was nearly empty starts from `lease` and looks through the
-- whole batch for each of its rows. OFFSET 0 and the lock inside LATERAL keep the first steps
-- from that, the ARRAY the last from reading more than the batch.
WITH given AS MATERIALIZED (
    SELECT job.job_no, reports.token, reports.percent, reports.message, reports.updated_at
    FROM unnest(
        %(namespaces)s::text[], %(job_ids)s::text[], %(tokens)s::uuid[],
        %(percents)s::integer[], %(messages)s::text[], %(updated_ats)s::timestamptz[]
    ) AS reports (namespace, job_id, token, percent, message, updated_at)
    CROSS JOIN LATERAL (
        SELECT job_no
        FROM namespace
        JOIN job ON job.namespace_id = namespace.id AND job.id = reports.job_id
        WHERE namespace.name = reports.namespace
        OFFSET 0
    ) AS job
    ORDER BY job.job_no
),
current AS MATERIALIZED (
    SELECT given.job_no, given.percent, given.message, given.updated_at
    FROM given
    CROSS JOIN LATERAL (
        SELECT
        FROM lease
        WHERE lease.job_no = given.job_no
          AND lease.token = given.token
          AND (lease.progress_at IS NULL OR lease.progress_at <= given.updated_at)
        FOR NO KEY UPDATE
    ) AS held
)
UPDATE lease
SET progress_percent = current.percent,
    progress_message = current.message,
    progress_at = current.updated_at
FROM current
WHERE lease.job_no = current.job_no
  AND lease.job_no = ANY (ARRAY (SELECT job_no FROM current))
