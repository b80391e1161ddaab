-- Which database this is, and what is committed in it now.
-- A restored dump has another system identifier; a recovery to an earlier point, or a
-- failover, keeps the identifier and starts another timeline: in both cases transaction
-- ids of the saved snapshot may mean other transactions now.
SELECT
    (SELECT system_identifier FROM pg_control_system())::text
        || '.' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) AS database_identity,
    pg_current_snapshot()::text AS snapshot
