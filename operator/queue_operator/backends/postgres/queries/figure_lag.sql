-- Seconds since the oldest row of the log that the counters do not contain yet; 0 for none.
-- No parameters. Index: figure_progress_pkey, from its end; job_event_by_xid, the first row behind the
-- snapshot, and for each transaction that was open then. Locks: none.
-- Traps: the first by transaction is about the oldest. A plain seq would let the primary key be walked
--   instead.
WITH noted AS MATERIALIZED (
    SELECT snapshot, above_seq FROM figure_progress ORDER BY version DESC LIMIT 1
)
SELECT coalesce(extract(epoch FROM greatest(now() - least(
    (SELECT at FROM job_event
     WHERE xid >= (SELECT pg_snapshot_xmax(snapshot) FROM noted)
       AND seq + 0 > (SELECT above_seq FROM noted)
     ORDER BY xid LIMIT 1),
    (SELECT min(at) FROM job_event
     WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(snapshot) FROM noted))
       AND seq + 0 > (SELECT above_seq FROM noted))
), interval '0'))::double precision, 0)
