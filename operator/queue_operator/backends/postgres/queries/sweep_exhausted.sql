-- Lost jobs without an attempt left, whose time for a late outcome is over.
-- Parameters: max_rows. Index: ready_stage. Locks: the rows found.
SELECT job_no FROM ready
WHERE NOT due AND NOT blocked AND eligible_at <= now() AND state IN ({{UNKNOWN_RETRY}})
  AND max_attempts > 0 AND attempt >= max_attempts
ORDER BY eligible_at LIMIT %(max_rows)s
FOR UPDATE SKIP LOCKED
