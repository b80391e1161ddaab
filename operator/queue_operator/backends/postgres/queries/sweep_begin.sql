-- Notes that a sweep is done now, and says whether leases may be taken as expired: not within
-- one TTL after a gap in which nobody swept, for then the workers could not renew either.
-- Parameters: ttl_s. Locks: the one row.
UPDATE sweep
SET resumed_at = CASE WHEN now() - swept_at > make_interval(secs => %(ttl_s)s)
                      THEN now() ELSE resumed_at END,
    swept_at = now()
RETURNING coalesce(now() - resumed_at >= make_interval(secs => %(ttl_s)s), true)
