-- Lost jobs without an attempt left. Parameters: now. Index: job_used_up, a range.
-- Trap: for the sake of the order SQLite would rather read the whole table; INDEXED BY forbids it.
SELECT * FROM job INDEXED BY job_used_up
WHERE used_up = 1 AND state IN ({{UNKNOWN_RETRY}}) AND eligible_at <= :now ORDER BY number
