-- The newest messages about a job, in some states, before a place.
-- Parameters: namespace, job_id, states (text[]), before (bigint), limit (int).
-- Index: webhook_by_job, from the place on. Locks: none.
-- Traps: jobs of other namespaces may have the id too. For the id see `webhook_list.sql`.
SELECT {{columns}} FROM webhook_message
WHERE job_id >= %(job_id)s AND (job_id, number) < (%(job_id)s, %(before)s::bigint)
  AND (namespace = %(namespace)s AND state = ANY (%(states)s::text[])) IS TRUE
ORDER BY job_id DESC, number DESC
LIMIT %(limit)s::int
