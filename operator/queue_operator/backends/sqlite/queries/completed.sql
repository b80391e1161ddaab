-- Old results. Parameters: at, namespace (NULL: any). Index: job_completed, a range.
-- Trap: for the sake of the order SQLite would rather read the whole table; INDEXED BY forbids it.
SELECT * FROM job INDEXED BY job_completed
WHERE state IN ({{COMPLETED}}) AND finalized_at < :at
  AND (:namespace IS NULL OR namespace = :namespace) ORDER BY number
