-- Part of others: which history of which database this is. It changes when the server starts anew,
-- also within, after one of its processes was killed; when a copy of it takes its place; and when
-- the database is another one of the same name.
-- Index: none; one row of a catalogue. Locks: none.
-- Trap: numbers of transactions of which nothing was on disk yet are given again after a crash. The
-- first process of the server may live on through one, but its statistics are discarded. Who resets
--   them by hand has everybody begin anew, once.
(SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) || ':' || oid::text || ':'
        || extract(epoch FROM pg_postmaster_start_time())::text || ':'
        || coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text, '')
 FROM pg_database WHERE datname = current_database())
