-- Of leases that are due those that nobody is about to move, and why they end: executions past
-- their deadline by one TTL, cancels nobody answered, leases that ran out.
-- Parameters: leases (bigint[], as in `lease_check`), run_out (those of them without a renewal);
--   deadline_before, cancel_before; max_rows.
-- Index: lease_pkey. Locks: the rows found, skipping those that somebody else has locked.
SELECT (job_no << 16) | (lease_version & 65535), token::text,
       CASE WHEN state IN ({{CANCELLING}})
                 AND (cancel_forced OR NOT cancel_received)
                 AND cancel_requested_at < %(cancel_before)s
            THEN 'cancel'
            WHEN deadline < %(deadline_before)s THEN 'timeout'
            ELSE 'lease' END
FROM lease
WHERE job_no = ANY (ARRAY(SELECT lease >> 16 FROM unnest(%(leases)s::bigint[]) AS l(lease)))
  AND ((((job_no << 16) | (lease_version & 65535)) IN (
           SELECT unnest(%(run_out)s::bigint[]))) IS TRUE
       OR deadline < %(deadline_before)s
       OR (state IN ({{CANCELLING}}) AND (cancel_forced OR NOT cancel_received)
           AND cancel_requested_at < %(cancel_before)s))
ORDER BY job_no LIMIT %(max_rows)s
FOR UPDATE SKIP LOCKED
