-- Old results, the oldest first. Parameters: at, namespace (NULL: any), after_at and after (the place
-- beyond which they are), max_rows. Index: job_completed, a range.
-- Trap: it has no namespaces, so one is looked for among the old results of all.
SELECT number, id, namespace, finalized_at FROM job INDEXED BY job_completed
WHERE state IN ({{COMPLETED}}) AND finalized_at < :at
  AND finalized_at >= :after_at AND (finalized_at, number) > (:after_at, :after)
  AND (:namespace IS NULL OR namespace = :namespace)
ORDER BY finalized_at, number LIMIT :max_rows
