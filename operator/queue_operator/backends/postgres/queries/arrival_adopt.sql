-- Forgets the arrivals of another database, of which this is a restored copy: their transactions are
-- to come here. No parameters. Index: arrival_by_xid. Locks: the rows.
DELETE FROM arrival WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
