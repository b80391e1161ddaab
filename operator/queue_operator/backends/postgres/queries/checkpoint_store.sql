-- Stores checkpoints of jobs that run under the given tokens, or were lost and not claimed since.
-- Parameters, aligned by position, no job twice: namespaces (int[]), ids (text[]), tokens
--   (uuid[]), numbers (bigint[]), checkpoints (bytea[]). Gives the places that were taken, also
--   where a newer checkpoint is stored.
-- Index: job_namespace_id_id_key; the primary keys of lease, ready and checkpoint.
-- Locks: the leases in the order of their number, then the waiting rows; nothing ends a job
--   before its checkpoint is stored, or the row would be left behind.
-- Traps: a job that moves while we wait for its row is found in no table; the caller asks once
--   more. The mark on the row keeps it out of `complete.sql`, which takes no checkpoint away.
WITH known AS MATERIALIZED (
    SELECT g.n, g.token, found.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        WITH ORDINALITY AS g(namespace_id, id, token, n)
    CROSS JOIN LATERAL (
        SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
    ) found
    ORDER BY found.job_no
), leased AS MATERIALIZED (
    SELECT known.n, l.* FROM known CROSS JOIN LATERAL (
        SELECT job_no, lease_version, state, cancel_forced FROM lease
        WHERE lease.job_no = known.job_no AND lease.token = known.token
        FOR NO KEY UPDATE
    ) l
), lost AS MATERIALIZED (
    SELECT known.n, r.* FROM known CROSS JOIN LATERAL (
        SELECT job_no, lease_version, state, false AS cancel_forced FROM ready
        WHERE ready.job_no = known.job_no AND ready.token = known.token
          AND ready.state IN ({{UNKNOWN_RETRY}})
        FOR NO KEY UPDATE
    ) r
), held AS MATERIALIZED (
    SELECT * FROM leased UNION ALL SELECT * FROM lost
), marked AS (
    UPDATE lease SET checkpointed = true
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM leased)) AND NOT checkpointed
), marked_lost AS (
    UPDATE ready SET checkpointed = true
    WHERE job_no = ANY (ARRAY(SELECT job_no FROM lost)) AND NOT checkpointed
), stored AS (
    INSERT INTO checkpoint AS kept (job_no, version, number, data)
    SELECT held.job_no, held.lease_version,
           ((SELECT %(numbers)s::bigint[]))[held.n], ((SELECT %(checkpoints)b::bytea[]))[held.n]
    FROM held
    ON CONFLICT (job_no) DO UPDATE
    SET version = excluded.version, number = excluded.number, data = excluded.data, at = now()
    WHERE (kept.version, kept.number) <= (excluded.version, excluded.number)
)
SELECT n::int, state, cancel_forced FROM held
