-- What is stored of parts of a job's log, the oldest first; one row at least if the job exists.
-- Parameters: namespace_id, id; aligned by position: versions (int[]), lines, untils (bigint[]), each
--   of which says behind which line of an attempt a part begins, and before which attempt it ends.
-- Index: job_namespace_id_id_key, log_chunk_pkey once for each part. Locks: none.
SELECT found.version, found.attempt, found.body
FROM job LEFT JOIN LATERAL (
    SELECT chunk.version, chunk.last, chunk.attempt, chunk.body
    FROM unnest(%(versions)s::int[], %(lines)s::bigint[], %(untils)s::bigint[])
        AS part (version, line, until)
    CROSS JOIN LATERAL (
        SELECT version, last, attempt, body FROM log_chunk
        WHERE log_chunk.job_no = job.job_no
          AND (log_chunk.version, log_chunk.last) > (part.version, part.line)
          AND log_chunk.version < part.until
    ) chunk
) found ON true
WHERE job.namespace_id = %(namespace_id)s AND job.id = %(id)s
ORDER BY found.version, found.last
