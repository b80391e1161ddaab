-- Stores the newest progress of many running attempts.
-- Parameters, aligned by position, no (namespace, id, token) twice: namespaces text[],
-- job_ids text[], tokens uuid[], percents integer[], messages text[], updated_ats timestamptz[].
-- Index: job's unique (namespace_id, id), the primary keys of lease and progress.
-- Locks: the leases in the order of their number, so that it never waits in a circle with
-- another batch; a lease that ended while it waited is left out.
-- A token is current only while its lease exists, so the token is all that is checked.
-- Traps: neither the lease nor the row before is updated: versions of one row would be walked by
-- all who read it while they cannot be removed. The newest time counts, so an older row that two at
-- once leave behind does no harm; the sweeper takes it away with the rest when the lease is gone.
-- A plan from when `lease` was nearly empty starts from `lease` and looks through the
-- whole batch for each of its rows. OFFSET 0 and the lock inside LATERAL keep it from that.
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
    SELECT (held.job_no << 16) | (held.lease_version & 65535) AS lease, held.job_no, held.mirrored,
           given.percent, given.message, given.updated_at
    FROM given
    CROSS JOIN LATERAL (
        SELECT job_no, lease_version, mirrored
        FROM lease
        WHERE lease.job_no = given.job_no
          AND lease.token = given.token
        FOR NO KEY UPDATE
    ) AS held
),
newer AS MATERIALIZED (
    SELECT current.*, last.spot, last.at AS last_at
    FROM current
    LEFT JOIN LATERAL (
        SELECT ctid AS spot, at FROM progress
        WHERE progress.lease = current.lease
        ORDER BY at DESC LIMIT 1
    ) AS last ON true
    WHERE last.at IS NULL OR last.at <= current.updated_at
),
replaced AS (
    DELETE FROM progress
    WHERE ctid = ANY (ARRAY(SELECT spot FROM newer WHERE last_at < updated_at))
),
told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM newer WHERE mirrored
),
checked AS (
    INSERT INTO lease_check (kind, look_at, leases)
    SELECT 'PROGRESS', now() + interval '5 minutes', array_agg(lease)
    FROM newer WHERE last_at IS NULL HAVING count(*) > 0
)
INSERT INTO progress AS stored (lease, at, percent, message)
SELECT lease, updated_at, percent, message FROM newer
ON CONFLICT (lease, at) DO UPDATE SET percent = excluded.percent, message = excluded.message
