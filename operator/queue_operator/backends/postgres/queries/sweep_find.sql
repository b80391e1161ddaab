-- Leases that ran out, executions past their deadline by one TTL, cancels nobody answered.
-- Parameters: may_expire, ttl_s, cancel_timeout_s, max_rows.
-- Index: none, on purpose: the table is as long as there are jobs running.
-- Locks: the rows found, skipping those that somebody is about to move.
SELECT job_no, token::text,
       CASE WHEN state IN ({{CANCELLING}})
                 AND (cancel_forced OR NOT cancel_received)
                 AND cancel_requested_at < now() - make_interval(secs => %(cancel_timeout_s)s)
            THEN 'cancel'
            WHEN deadline < now() - make_interval(secs => %(ttl_s)s) THEN 'timeout'
            ELSE 'lease' END
FROM lease
WHERE (%(may_expire)s AND expires_at < now())
   OR deadline < now() - make_interval(secs => %(ttl_s)s)
   OR (state IN ({{CANCELLING}}) AND (cancel_forced OR NOT cancel_received)
       AND cancel_requested_at < now() - make_interval(secs => %(cancel_timeout_s)s))
ORDER BY job_no LIMIT %(max_rows)s
FOR UPDATE SKIP LOCKED
