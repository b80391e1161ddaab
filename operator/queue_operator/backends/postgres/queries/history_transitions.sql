-- The transitions of a job that have a row. Parameters: job_no. Index: transition_pkey.
-- Locks: none. Trap: to be read in the snapshot of `history_job.sql`.
SELECT number, event, from_state, to_state, at, reason
FROM transition
WHERE job_no = %(job_no)s
ORDER BY number
