-- One step of pruning the event log: deletes its oldest rows, up to the first one that is too young
-- or that somebody has not read yet, and says how many. NULL where another step was faster.
-- Parameters: older_than_s, max_rows.
-- Index: job_event_pkey from where the last step ended; event_pruned_pkey and roll_up_progress_pkey
--   from their ends.
-- Locks: the newest row of event_pruned, so that steps come one after the other, and the rows of
--   the log, which nobody else changes.
-- Traps: the readers are the roll-ups, and each lake of the pipeline. What their snapshots see they
--   have read; but those of another database, of which this is a copy, tell nothing. For the
--   roll-ups rows up to above_seq are of that one, and were read when the copy was opened.
--   Dead rows before the mark are not passed by, however long a snapshot keeps them.
WITH mark AS MATERIALIZED (
    SELECT seq FROM event_pruned ORDER BY seq DESC LIMIT 1 FOR UPDATE
), oldest AS MATERIALIZED (
    SELECT seq, xid, at FROM job_event WHERE seq > (SELECT seq FROM mark)
    ORDER BY seq LIMIT %(max_rows)s
), lakes AS MATERIALIZED (
    SELECT CASE WHEN snapshot <> '' AND system_identifier = (
               SELECT system_identifier::text FROM pg_control_system()
           ) || '.' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
           THEN snapshot::pg_snapshot END AS snapshot
    FROM pipeline_checkpoint
), rolled AS MATERIALIZED (
    SELECT snapshot, xmin = xid::xid AS is_ours, above_seq
    FROM roll_up_progress ORDER BY version DESC LIMIT 1
), judged AS MATERIALIZED (
    SELECT seq,
           at < now() - make_interval(secs => %(older_than_s)s)
           AND EXISTS (
               SELECT FROM rolled
               WHERE is_ours
                 AND (oldest.seq <= rolled.above_seq
                      OR pg_visible_in_snapshot(oldest.xid, rolled.snapshot))
           ) AND NOT EXISTS (
               SELECT FROM lakes
               WHERE (pg_visible_in_snapshot(oldest.xid, lakes.snapshot)) IS NOT TRUE
           ) AS may_go
    FROM oldest
), going AS MATERIALIZED (
    SELECT seq FROM judged
    WHERE seq < coalesce((SELECT min(seq) FROM judged WHERE NOT may_go), 9223372036854775807)
), gone AS (
    DELETE FROM job_event WHERE seq = ANY (ARRAY(SELECT seq FROM going))
), moved AS (
    INSERT INTO event_pruned SELECT max(seq) FROM going HAVING count(*) > 0
), forgotten AS (
    DELETE FROM event_pruned
    WHERE seq = (SELECT seq FROM mark) AND EXISTS (SELECT FROM going)
)
SELECT CASE WHEN EXISTS (SELECT FROM mark) THEN (SELECT count(*) FROM going)::int END
