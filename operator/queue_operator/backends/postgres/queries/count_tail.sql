-- Part of others: the changes that the counts do not have yet, by lane and state. No parameters.
-- Index: count_progress_pkey, from its end; count_delta_by_xid, from where the counts' snapshot ends,
--   and for each transaction that was open then. What is dead lies before. Locks: none.
-- Traps: one statement with whatever reads the counts, hence one snapshot: a change that is being
--   folded counts once. In a restored copy the row was not written by the transaction that it names;
--   until the first fold all changes that are there are read.
noted AS MATERIALIZED (
    SELECT CASE WHEN xmin = xid::xid THEN pg_snapshot_xmax(snapshot) ELSE '0' END AS first_xid,
           ARRAY(SELECT pg_snapshot_xip(snapshot)) AS open_xids
    FROM count_progress ORDER BY version DESC LIMIT 1
), tail AS MATERIALIZED (
    SELECT lane_id, state, sum(jobs)::bigint AS jobs, sum(retries)::bigint AS retries,
           sum(blocked)::bigint AS blocked
    FROM (
        SELECT lane_id, state, jobs, retries, blocked FROM count_delta
        WHERE xid >= (SELECT first_xid FROM noted)
        UNION ALL
        SELECT lane_id, state, jobs, retries, blocked FROM count_delta
        WHERE xid = ANY ((SELECT open_xids FROM noted)::xid8[])
          AND xid < (SELECT first_xid FROM noted)
    ) AS changes
    GROUP BY lane_id, state
)
