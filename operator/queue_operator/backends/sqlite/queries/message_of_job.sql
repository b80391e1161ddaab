-- The newest messages about a job in one state, before a place. Parameters: namespace, job_id, state,
-- before, max_rows. Index: message_by_job, from its end.
SELECT number, held, record FROM message
WHERE job_id = :job_id AND +namespace = :namespace AND +state = :state AND number < :before
ORDER BY number DESC
LIMIT :max_rows
