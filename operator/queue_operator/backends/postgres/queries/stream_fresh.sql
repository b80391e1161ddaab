-- Part of others: the rows of the log that the snapshot `upto` sees and an earlier one did not.
-- Parameters, index and traps: as of `roll_up_fresh.sql`.
    SELECT xid, seq, at, event, to_state, job_nos, attempts, failed, ids, lane_ids, lane_of
    FROM job_event
    WHERE xid >= %(first_xid)s::xid8 AND xid < %(end_xid)s::xid8
      AND pg_visible_in_snapshot(xid, %(upto)s::pg_snapshot) AND seq + 0 > %(above_seq)s
    UNION ALL
    SELECT xid, seq, at, event, to_state, job_nos, attempts, failed, ids, lane_ids, lane_of
    FROM job_event
    WHERE xid = ANY (%(open_xids)s::xid8[])
      AND pg_visible_in_snapshot(xid, %(upto)s::pg_snapshot) AND seq + 0 > %(above_seq)s
