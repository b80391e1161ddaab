-- Part of others: which history of which database this is. It changes when the server starts anew,
-- when a copy of it takes its place, and when the database is another one of the same name.
-- Index: none; one row of a catalogue. Locks: none.
(SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) || ':' || oid::text || ':'
        || extract(epoch FROM pg_postmaster_start_time())::text
 FROM pg_database WHERE datname = current_database())
