-- Of lost jobs without an attempt left those whose time for a late outcome is over.
-- Parameters: leases (bigint[], as in `lease_check`); max_rows. Gives leases.
-- Index: ready_pkey. Locks: the rows found, skipping those that somebody else has locked.
-- Traps: one that is suspended is given up too: then `blocked` is NULL. A plain condition would let
--   a plan walk an index that is for such rows only.
SELECT (job_no << 16) | (lease_version & 65535) FROM ready
WHERE job_no = ANY (ARRAY(SELECT lease >> 16 FROM unnest(%(leases)s::bigint[]) AS l(lease)))
  AND NOT coalesce(due, true) AND NOT coalesce(blocked, false) AND eligible_at <= now()
  AND coalesce(state, '') IN ({{UNKNOWN_RETRY}})
  AND max_attempts > 0 AND attempt >= max_attempts
ORDER BY job_no LIMIT %(max_rows)s
FOR UPDATE SKIP LOCKED
