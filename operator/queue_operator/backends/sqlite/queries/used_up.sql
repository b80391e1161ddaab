-- Lost jobs without an attempt left. Parameters: now. Index: job_used_up.
SELECT * FROM job
WHERE used_up = 1 AND state IN ({{UNKNOWN_RETRY}}) AND eligible_at <= :now ORDER BY number
