-- Old results. Parameters: at, namespace (NULL: any). Index: job_completed.
SELECT * FROM job
WHERE state IN ({{COMPLETED}}) AND finalized_at < :at
  AND (:namespace IS NULL OR namespace = :namespace) ORDER BY number
