-- Notes that a sweep is done now, and says whether leases may be taken as expired: not within
-- one TTL after a gap in which nobody swept, for then the workers could not renew either. And says
-- whether there is anything that sweep_find or sweep_exhausted would find.
-- Parameters: ttl_s, cancel_timeout_s. Index: ready_stage; none for the leases, on purpose: the
-- table is as long as there are jobs running. Locks: the one row of sweep.
WITH begun AS (
    UPDATE sweep
    SET resumed_at = CASE WHEN now() - swept_at > make_interval(secs => %(ttl_s)s)
                          THEN now() ELSE resumed_at END,
        swept_at = now()
    RETURNING coalesce(now() - resumed_at >= make_interval(secs => %(ttl_s)s), true) AS may_expire
)
SELECT may_expire,
       EXISTS (
           SELECT FROM lease
           WHERE (may_expire AND expires_at < now())
              OR deadline < now() - make_interval(secs => %(ttl_s)s)
              OR (state IN ({{CANCELLING}}) AND (cancel_forced OR NOT cancel_received)
                  AND cancel_requested_at < now() - make_interval(secs => %(cancel_timeout_s)s))
       ) OR (
           SELECT true FROM ready
           WHERE NOT due AND NOT blocked AND eligible_at <= now() AND state IN ({{UNKNOWN_RETRY}})
             AND max_attempts > 0 AND attempt >= max_attempts
           ORDER BY eligible_at LIMIT 1
       ) IS NOT NULL
FROM begun
