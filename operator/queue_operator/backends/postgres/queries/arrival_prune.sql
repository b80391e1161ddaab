-- Forgets arrivals that everybody has read. Parameters: from_xid, end_xid (xid8): those of these
-- transactions. Index: arrival_by_xid. Locks: the rows.
-- Trap: it begins where the last one ended: what is dead before that may stay there for long.
DELETE FROM arrival WHERE xid >= %(from_xid)s::xid8 AND xid < %(end_xid)s::xid8
