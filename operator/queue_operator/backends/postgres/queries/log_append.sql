-- Appends lines to the logs of attempts, and drops what is older than their bounds.
-- Parameters, aligned by position, no token twice: namespaces (int[]), ids (text[]), tokens
--   (uuid[]), lasts (bigint[]), lines, bytes (int[]), bodies (text[]); max_lines, max_bytes,
--   max_attempts.
-- Index: job_namespace_id_id_key; the primary keys of lease, ready, final, attempt, log_chunk.
-- Locks: the rows of jobs that have ended, so that none is deleted before its lines are stored,
--   which would be left behind; in order of number.
-- Traps: a chunk that is older than what fills the bounds goes as a whole, so up to a chunk more
--   than the bounds stays: who reads cuts it. Chunks are deleted by their place in the table
--   (ctid): a join could be planned to read all of it.
WITH known AS MATERIALIZED (
    SELECT g.n, g.token, found.job_no
    FROM unnest(%(namespaces)s::int[], %(ids)s::text[], %(tokens)s::uuid[])
        WITH ORDINALITY AS g(namespace_id, id, token, n)
    CROSS JOIN LATERAL (
        SELECT job_no FROM job WHERE job.namespace_id = g.namespace_id AND job.id = g.id LIMIT 1
    ) found
    ORDER BY found.job_no
), ended AS MATERIALIZED (
    SELECT known.n FROM known CROSS JOIN LATERAL (
        SELECT FROM final WHERE final.job_no = known.job_no FOR KEY SHARE
    ) held
), stored_still AS MATERIALIZED (
    SELECT n FROM ended
    UNION ALL
    SELECT known.n FROM known CROSS JOIN LATERAL (
        SELECT FROM lease WHERE lease.job_no = known.job_no LIMIT 1
    ) held
    UNION ALL
    SELECT known.n FROM known CROSS JOIN LATERAL (
        SELECT FROM ready WHERE ready.job_no = known.job_no LIMIT 1
    ) held
), owned AS MATERIALIZED (
    SELECT known.n, known.job_no, run.version, run.attempt,
           ((SELECT %(lasts)s::bigint[]))[known.n] AS last,
           ((SELECT %(lines)s::int[]))[known.n] AS lines,
           ((SELECT %(bytes)s::int[]))[known.n] AS bytes
    FROM known CROSS JOIN LATERAL (
        SELECT lease_version AS version, attempt FROM lease
        WHERE lease.job_no = known.job_no AND lease.token = known.token
        UNION ALL
        -- Before `final`, and instead of `ready`, where an attempt that does not count is taken off.
        SELECT version, number FROM attempt
        WHERE attempt.job_no = known.job_no AND attempt.token = known.token
        UNION ALL
        SELECT lease_version, attempt FROM final
        WHERE final.job_no = known.job_no AND final.token = known.token
        LIMIT 1
    ) run
    -- One that was deleted while we waited for it is still seen in `final`.
    WHERE known.n = ANY (ARRAY(SELECT n FROM stored_still))
), stored AS (
    INSERT INTO log_chunk (job_no, version, last, attempt, lines, bytes, body)
    SELECT job_no, version, last, attempt, lines, bytes, ((SELECT %(bodies)s::text[]))[n]
    FROM owned
    ON CONFLICT DO NOTHING
), full_up AS MATERIALIZED (
    SELECT older.spot FROM owned CROSS JOIN LATERAL (
        SELECT ctid AS spot, coalesce(sum(lines) OVER newer, 0) AS lines,
               coalesce(sum(bytes) OVER newer, 0) AS bytes
        FROM log_chunk
        WHERE log_chunk.job_no = owned.job_no AND log_chunk.version = owned.version
        WINDOW newer AS (ORDER BY last DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) older
    WHERE older.lines + owned.lines >= %(max_lines)s OR older.bytes + owned.bytes >= %(max_bytes)s
), outdated AS MATERIALIZED (
    -- Looked for with the first lines of an attempt only.
    SELECT older.spot FROM owned CROSS JOIN LATERAL (
        SELECT ctid AS spot, dense_rank() OVER (ORDER BY version DESC) AS place
        FROM log_chunk
        WHERE log_chunk.job_no = owned.job_no AND log_chunk.version < owned.version
          AND (SELECT count(*) FROM (
              SELECT FROM log_chunk own
              WHERE own.job_no = owned.job_no AND own.version = owned.version LIMIT 1
          ) known_already) = 0
    ) older
    WHERE older.place >= %(max_attempts)s
)
DELETE FROM log_chunk
WHERE ctid = ANY (ARRAY(SELECT spot FROM full_up UNION SELECT spot FROM outdated))
