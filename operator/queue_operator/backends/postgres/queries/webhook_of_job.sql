-- The newest messages about a job, in some states, before a place.
-- Parameters: namespace, job_id, states (text[]), before (bigint), limit (int).
-- Index: webhook_by_job, from its end. Locks: none.
-- Trap: jobs of other namespaces may have the id too.
SELECT {{columns}} FROM webhook_message
WHERE job_id = %(job_id)s AND namespace = %(namespace)s AND state = ANY (%(states)s::text[])
  AND number < %(before)s::bigint
ORDER BY job_id DESC, number DESC
LIMIT %(limit)s::int
