-- The condition "committed after snapshot A and not after snapshot B".
-- "Not visible in A" is written out as what it means, so that an index on xid serves it
-- and an idle transaction, which holds xmin(A) back, does not make every run scan from there.
(xid >= {first_xid}::xid8 OR xid = ANY ({open_xids}::text[]::xid8[]))
    AND xid < {end_xid}::xid8
    AND pg_visible_in_snapshot(xid, {snapshot}::pg_snapshot)
