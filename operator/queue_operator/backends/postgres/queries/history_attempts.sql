-- The ended attempts of a job that have a row. Parameters: job_no. Index: attempt_pkey.
-- Locks: none. Trap: to be read in the snapshot of `history_job.sql`.
SELECT version, number, token::text, assignee_id, worker_name, host, assigned_at, ended_at, event,
       from_state, state, error, eligible_at
FROM attempt
WHERE job_no = %(job_no)s
ORDER BY version
