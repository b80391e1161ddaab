-- The time, how far the roll-ups are, as in `roll_up_lock.sql`, and how much of the log is not in
-- them: rows, and bytes of job numbers. Parameters: max_rows: no more are counted.
-- Index: roll_up_progress_pkey, from its end; job_event_by_xid, in the range behind the snapshot.
-- Locks: none.
-- Traps: the size of an array that is stored elsewhere is known without fetching it. A plain seq
--   would let the primary key be walked instead.
WITH noted AS MATERIALIZED (
    SELECT version, snapshot, xmin = xid::xid AS is_ours, above_seq, closed_until
    FROM roll_up_progress ORDER BY version DESC LIMIT 1
), behind AS (
    SELECT pg_column_size(job_nos) AS bytes FROM job_event
    WHERE xid >= (SELECT pg_snapshot_xmax(snapshot) FROM noted)
      AND xid < pg_snapshot_xmax(pg_current_snapshot())
      AND seq + 0 > (SELECT above_seq FROM noted)
    ORDER BY xid LIMIT %(max_rows)s
), late AS (
    SELECT pg_column_size(job_nos) AS bytes FROM job_event
    WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(snapshot) FROM noted))
      AND seq + 0 > (SELECT above_seq FROM noted)
)
SELECT now(), pg_current_snapshot()::text, version, snapshot::text, is_ours, above_seq,
       {{closed}},
       (SELECT count(*) FROM behind) + (SELECT count(*) FROM late),
       coalesce((SELECT sum(bytes) FROM behind), 0)::bigint
       + coalesce((SELECT sum(bytes) FROM late), 0)::bigint
FROM noted
