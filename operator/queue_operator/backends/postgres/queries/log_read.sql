-- What is stored of a job's log, the oldest first; one row at least if the job exists.
-- Parameters: namespace_id, id. Index: job_namespace_id_id_key, log_chunk_pkey. Locks: none.
SELECT log_chunk.version, log_chunk.attempt, log_chunk.body
FROM job LEFT JOIN log_chunk ON log_chunk.job_no = job.job_no
WHERE job.namespace_id = %(namespace_id)s AND job.id = %(id)s
ORDER BY log_chunk.version, log_chunk.last
