-- Forgets arrivals that everybody has read, those of the oldest transactions first; gives how many,
-- and the last of these transactions.
-- Parameters: from_xid, end_xid (xid8): those of these transactions; max_rows. Index: arrival_by_xid.
-- Locks: the rows.
-- Trap: it begins where the last one ended: what is dead before that may stay there for long.
WITH old AS MATERIALIZED (
    SELECT ctid AS spot, xid FROM arrival
    WHERE xid >= %(from_xid)s::xid8 AND xid < %(end_xid)s::xid8
    ORDER BY xid LIMIT %(max_rows)s
), gone AS (
    DELETE FROM arrival WHERE ctid = ANY (ARRAY(SELECT spot FROM old))
)
SELECT count(*), (SELECT xid::text FROM old ORDER BY xid DESC LIMIT 1) FROM old
