-- The time, how far the roll-ups are, as in `roll_up_lock.sql`, and how much of the log is not in
-- them: rows, and bytes of job numbers. Parameters: max_rows: no more are counted.
-- Index: job_event_by_xid, in the range behind the snapshot. Locks: none.
-- Traps: the size of an array that is stored elsewhere is known without fetching it. A plain seq
--   would let the primary key be walked instead.
WITH behind AS (
    SELECT pg_column_size(job_nos) AS bytes FROM job_event
    WHERE xid >= (SELECT pg_snapshot_xmax(snapshot) FROM roll_up_progress)
      AND xid < pg_snapshot_xmax(pg_current_snapshot())
      AND seq + 0 > (SELECT above_seq FROM roll_up_progress)
    ORDER BY xid LIMIT %(max_rows)s
), late AS (
    SELECT pg_column_size(job_nos) AS bytes FROM job_event
    WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(snapshot) FROM roll_up_progress))
      AND seq + 0 > (SELECT above_seq FROM roll_up_progress)
)
SELECT now(), pg_current_snapshot()::text, snapshot::text, xmin = xid::xid, above_seq,
       {{closed}},
       (SELECT count(*) FROM behind) + (SELECT count(*) FROM late),
       coalesce((SELECT sum(bytes) FROM behind), 0)::bigint
       + coalesce((SELECT sum(bytes) FROM late), 0)::bigint
FROM roll_up_progress
