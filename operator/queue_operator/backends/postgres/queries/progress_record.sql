-- Stores the newest progress of many running attempts.
-- Parameters, aligned by position, no (namespace, id, token) twice: namespaces text[],
-- job_ids text[], tokens uuid[], percents integer[], messages text[], updated_ats timestamptz[].
-- Index: job's unique (namespace_id, id), lease's primary key; no index is on what changes.
-- Locks: the leases in the order of their number, so that it never waits in a circle with
-- another batch; a lease that ended while it waited is left out.
-- A token is current only while its lease exists, so the token is all that is checked.
WITH given AS (
    SELECT *
    FROM unnest(
        %(namespaces)s::text[], %(job_ids)s::text[], %(tokens)s::uuid[], %(percents)s::integer[],
        %(messages)s::text[], %(updated_ats)s::timestamptz[]
    ) AS given (namespace, job_id, token, percent, message, updated_at)
),
current AS (
    SELECT lease.job_no, given.percent, given.message, given.updated_at
    FROM given
    JOIN namespace ON namespace.name = given.namespace
    JOIN job ON job.namespace_id = namespace.id AND job.id = given.job_id
    JOIN lease ON lease.job_no = job.job_no AND lease.token = given.token
    WHERE lease.progress_at IS NULL OR lease.progress_at <= given.updated_at
    ORDER BY lease.job_no
    FOR NO KEY UPDATE OF lease
)
UPDATE lease
SET progress_percent = current.percent,
    progress_message = current.message,
    progress_at = current.updated_at
FROM current
WHERE lease.job_no = current.job_no
