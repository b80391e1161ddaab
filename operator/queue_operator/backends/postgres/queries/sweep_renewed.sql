-- Leases renewed since a snapshot. A heartbeat holds the leases it renews until it has committed:
-- of leases that the caller has locked since then, all renewals are seen here.
-- Parameters: seen, the snapshot. Index: lease_check_fresh. Locks: none.
-- Trap: OFFSET 0 keeps a plan from when there were few rows from reading all of one kind.
SELECT unnest(leases)
FROM (
    SELECT kind, leases FROM lease_check
    WHERE xid >= pg_snapshot_xmax(%(seen)s::pg_snapshot)
      AND xid < pg_snapshot_xmax(pg_current_snapshot())
    UNION ALL
    SELECT kind, leases FROM lease_check
    WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(%(seen)s::pg_snapshot)))
    OFFSET 0
) fresh
WHERE kind = 'RENEWAL'
