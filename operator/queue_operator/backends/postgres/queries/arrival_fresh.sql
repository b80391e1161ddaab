-- Part of others: what this snapshot sees of the arrivals and an earlier one did not, a row per lane
-- and range; the rest of a row is NULL where it only says when a job will be due.
-- Parameters: of the earlier one first_xid (xid8), from where it saw nothing, and open_xids (xid8[]),
--   which it did not see either; most_rows: of the table, no more are read.
-- Index: arrival_by_xid twice.
-- Traps: functions in the list of a SELECT are unnested in step. In a restored copy rows may name
--   transactions that are to come: they say nothing.
SELECT unnest(lane_ids) AS lane_id, unnest(firsts) AS first, unnest(first_nos) AS first_no,
       unnest(lasts) AS last, unnest(last_nos) AS last_no, due_at
FROM (
    SELECT CASE WHEN lane_ids = '{}' THEN ARRAY[NULL::int] ELSE lane_ids END AS lane_ids,
           firsts, first_nos, lasts, last_nos, due_at
    FROM (
        (SELECT * FROM arrival
         WHERE xid >= %(first_xid)s::xid8 AND xid < pg_snapshot_xmax(pg_current_snapshot())
         ORDER BY xid LIMIT %(most_rows)s)
        UNION ALL
        SELECT * FROM arrival WHERE xid = ANY (%(open_xids)s::xid8[])
    ) AS unseen
) AS told
