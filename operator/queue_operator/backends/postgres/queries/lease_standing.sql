-- Part of others: rows with the leases there are, as `lease_check` names them, and the hashes of
-- their assignees, NULL for any. They name ended ones too, and some twice.
-- Parameters: none. Index: sweep_pkey, its end; lease_check_due, from the sweeper's mark on;
--   lease_check_fresh, for what its last snapshot did not see. Locks: none.
-- Traps: the table of leases may be full of dead rows, all of which its readers would pass by.
--   OFFSET 0 keeps a plan from when there were few from starting with all of `lease_check`.
SELECT checked.* FROM (
    SELECT kinds, marks FROM sweep ORDER BY number DESC LIMIT 1
) last
CROSS JOIN unnest(ARRAY['CLAIM', 'RENEWAL', 'HELD']) AS k(kind)
CROSS JOIN LATERAL (
    SELECT leases, assignees FROM lease_check
    WHERE lease_check.kind = k.kind
      AND look_at >= coalesce(marks[array_position(kinds, k.kind)], '-infinity')
    OFFSET 0
) checked
UNION ALL
SELECT leases, assignees FROM (
    SELECT * FROM lease_check
    WHERE xid >= (SELECT pg_snapshot_xmax(seen) FROM sweep ORDER BY number DESC LIMIT 1)
    UNION ALL
    SELECT * FROM lease_check
    WHERE xid = ANY (ARRAY(
        SELECT pg_snapshot_xip(seen)
        FROM (SELECT seen FROM sweep ORDER BY number DESC LIMIT 1) last))
    OFFSET 0
) fresh
WHERE kind IN ('CLAIM', 'RENEWAL', 'HELD')
