-- Where the log of events ends: what tells this database, as it lives now, from every other and from
-- what it was before a backup of it was restored; the current snapshot; the last number that it
-- sees; up to which number rows came with a copy, and up to which they were pruned.
-- No parameters. Index: job_event_pkey, event_pruned_pkey and roll_up_progress_pkey, from their ends.
-- Locks: none. Trap: the condition always holds, and is what the index is entered by.
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' ||
       (SELECT oid FROM pg_database WHERE datname = current_database())::text || '/' ||
       left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
       pg_current_snapshot()::text,
       greatest((SELECT max(seq) FROM job_event WHERE seq > 0), pruned.seq),
       coalesce((SELECT above_seq FROM roll_up_progress ORDER BY version DESC LIMIT 1), 0),
       pruned.seq
FROM (SELECT coalesce(max(seq), 0) AS seq FROM event_pruned) AS pruned
