-- Since when jobs have been eligible, by namespace and type. Parameters: now. Index: job_due, up
-- to now.
-- Trap: SQLite would rather read job_count whole, to save sorting; INDEXED BY forbids it.
SELECT namespace, type, min(eligible_at) FROM job INDEXED BY job_due
WHERE claimable = 1 AND eligible_at <= :now GROUP BY namespace, type
