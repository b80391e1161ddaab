-- Completed jobs of a namespace that ended more than ttl_s ago, the oldest first, beyond a place.
-- Parameters: ttl_s, namespace_id, after_at and after_no (the place), max_rows.
-- Index: final_done, from the place on.
-- Trap: what was found before is deleted in the same transaction, and its entries in the index stay
--   until the end: without a place each step would pass by all of them.
SELECT job_no, finalized_at FROM final
WHERE state IN ({{completed}}) AND namespace_id = %(namespace_id)s
  AND finalized_at < now() - make_interval(secs => %(ttl_s)s)
  AND (finalized_at, job_no) > (%(after_at)s::timestamptz, %(after_no)s::bigint)
ORDER BY finalized_at, job_no LIMIT %(max_rows)s
