-- Part of others: what the snapshot `upto` sees of the log and an earlier one did not.
-- Parameters: of the earlier one first_xid (xid8), from where it saw nothing, and open_xids
--   (xid8[]), which it did not see either; end_xid (xid8), from where `upto` sees nothing, and upto.
-- Index: job_event_by_xid twice.
-- Trap: in rows up to above_seq the transactions are of another database, of which this is a copy;
--   they were counted when it began. A plain seq would let the primary key be walked instead.
    SELECT at, event, from_state, to_state, job_nos, coalesce(wait_us, run_us) AS us, failed,
           lane_ids, lane_of, lanes
    FROM job_event
    WHERE xid >= %(first_xid)s::xid8 AND xid < %(end_xid)s::xid8
      AND pg_visible_in_snapshot(xid, %(upto)s::pg_snapshot) AND seq + 0 > %(above_seq)s
    UNION ALL
    SELECT at, event, from_state, to_state, job_nos, coalesce(wait_us, run_us), failed, lane_ids,
           lane_of, lanes
    FROM job_event
    WHERE xid = ANY (%(open_xids)s::xid8[])
      AND pg_visible_in_snapshot(xid, %(upto)s::pg_snapshot) AND seq + 0 > %(above_seq)s
