-- Moves the oldest changes into the counts and gives their number; none where another is at it.
-- Parameters: limit integer: about so many, but all of transactions that were open at the last fold.
-- Index: count_progress_pkey, count_delta_by_xid (as in `count_tail.sql`); lane_pkey; of each count
--   its newest version, by its primary key from the end; lane_waiting_pkey.
-- Locks: the row of count_progress, which is passed by where another fold has it, or has removed
--   it since our snapshot: so who gets it sees all that was folded before, and is alone. Then of the
--   counts those that it replaces, namespaces first, then kinds, then lanes, as `count_forget.sql` does;
--   each waits for the one before by counting it, or the last that is written down would go first.
-- Traps: the order by transaction lets a fold stop anywhere: the snapshot that is noted ends before
--   the last one that was looked at. A transaction with a lower number may do what another made
--   possible, so a count may be below 0 until the next fold; with the changes that are not folded
--   it is right. xmin is compared, so no savepoint may be around this. In a restored copy all is
--   folded in one go, as old numbers and new ones mean different transactions. No two CTEs are
--   joined: each count is looked up, and summed, by itself; what was retried, and what is blocked, is told
--   once by each.
WITH noted AS MATERIALIZED (
    SELECT ctid AS spot, version, xmin = xid::xid AS is_ours,
           ARRAY(SELECT pg_snapshot_xip(snapshot)) AS open_xids,
           CASE WHEN xmin = xid::xid THEN pg_snapshot_xmax(snapshot) ELSE '0' END AS first_xid
    FROM count_progress
    WHERE version = (SELECT version FROM count_progress ORDER BY version DESC LIMIT 1)
      AND (EXISTS (SELECT FROM count_delta
                   WHERE count_delta.xid >= CASE WHEN count_progress.xmin = count_progress.xid::xid
                                            THEN pg_snapshot_xmax(snapshot) ELSE '0' END)
           OR EXISTS (SELECT FROM count_delta
                      WHERE count_delta.xid = ANY (ARRAY(SELECT pg_snapshot_xip(snapshot)))))
    FOR UPDATE SKIP LOCKED
), ordered AS MATERIALIZED (
    SELECT ctid AS spot, xid FROM count_delta
    WHERE xid >= (SELECT first_xid FROM noted)
    ORDER BY xid
    LIMIT (SELECT CASE WHEN is_ours THEN %(limit)s::bigint END FROM noted)
), stopped AS MATERIALIZED (
    SELECT xid::text::bigint AS xid FROM ordered
    WHERE (SELECT is_ours FROM noted) AND (SELECT count(*) FROM ordered) = %(limit)s::bigint
    ORDER BY ordered.xid DESC LIMIT 1
), removed AS (
    DELETE FROM count_delta
    WHERE ctid = ANY (ARRAY(
        SELECT spot FROM ordered
        UNION ALL
        SELECT ctid FROM count_delta
        WHERE xid = ANY ((SELECT open_xids FROM noted)::xid8[])
          AND xid < (SELECT first_xid FROM noted)
    ))
    RETURNING lane_id, state, jobs, retries, blocked
), changed AS MATERIALIZED (
    SELECT lane_id, array_agg(state) AS states, array_agg(jobs) AS jobs,
           sum(retries)::bigint AS retries, sum(blocked)::bigint AS blocked
    FROM (
        SELECT lane_id, state, sum(jobs)::bigint AS jobs, sum(retries) AS retries,
               sum(blocked) AS blocked
        FROM removed GROUP BY lane_id, state
    ) AS by_state
    GROUP BY lane_id
), lanes AS MATERIALIZED (
    SELECT changed.*, lane.namespace_id, lane.type_id, lane.priority, kept.spot,
           coalesce(kept.retries, 0) AS kept_retries, coalesce(kept.waiting, 0) AS waited, summed.*
    FROM changed
    LEFT JOIN LATERAL (
        SELECT * FROM lane WHERE lane.id = changed.lane_id OFFSET 0
    ) AS lane ON true
    LEFT JOIN LATERAL (
        SELECT ctid AS spot, * FROM lane_count
        WHERE lane_count.lane_id = changed.lane_id ORDER BY version DESC LIMIT 1
    ) AS kept ON true
    CROSS JOIN LATERAL ({{summed_up}}) AS summed
), kinds AS MATERIALIZED (
    SELECT changed.*, kept.spot, coalesce(kept.blocked, 0) AS kept_blocked, summed.*
    FROM (
        SELECT namespace_id, type_id, priority, array_agg(state) AS states, array_agg(n) AS jobs,
               sum(retries)::bigint AS retries, sum(blocked)::bigint AS blocked
        FROM (
            SELECT namespace_id, type_id, priority, state, sum(n)::bigint AS n,
                   sum(retries) FILTER (WHERE place = 1) AS retries,
                   sum(blocked) FILTER (WHERE place = 1) AS blocked
            FROM lanes
            CROSS JOIN LATERAL unnest(states, jobs) WITH ORDINALITY AS told(state, n, place)
            WHERE namespace_id IS NOT NULL
            GROUP BY namespace_id, type_id, priority, state
        ) AS by_state
        GROUP BY namespace_id, type_id, priority
    ) AS changed
    LEFT JOIN LATERAL (
        SELECT ctid AS spot, states, jobs, blocked FROM kind_count
        WHERE namespace_id = changed.namespace_id AND type_id = changed.type_id
          AND priority = changed.priority
        ORDER BY version DESC LIMIT 1
    ) AS kept ON true
    CROSS JOIN LATERAL ({{summed_up}}) AS summed
), spaces AS MATERIALIZED (
    SELECT changed.*, kept.spot, coalesce(kept.retries, 0) AS kept_retries, summed.*
    FROM (
        SELECT namespace_id, array_agg(state) AS states, array_agg(n) AS jobs,
               sum(retries)::bigint AS retries
        FROM (
            SELECT namespace_id, state, sum(n)::bigint AS n,
                   sum(retries) FILTER (WHERE place = 1) AS retries
            FROM kinds
            CROSS JOIN LATERAL unnest(states, jobs) WITH ORDINALITY AS told(state, n, place)
            GROUP BY namespace_id, state
        ) AS by_state
        GROUP BY namespace_id
    ) AS changed
    LEFT JOIN LATERAL (
        SELECT ctid AS spot, states, jobs, retries FROM namespace_count
        WHERE namespace_id = changed.namespace_id ORDER BY version DESC LIMIT 1
    ) AS kept ON true
    CROSS JOIN LATERAL ({{summed_up}}) AS summed
), spaces_kept AS (
    INSERT INTO namespace_count (namespace_id, version, states, jobs, retries)
    SELECT namespace_id, (SELECT version FROM noted) + 1, all_states, all_jobs,
           retries + kept_retries
    FROM spaces
), spaces_gone AS (
    DELETE FROM namespace_count WHERE ctid = ANY (ARRAY(SELECT spot FROM spaces))
    RETURNING 1
), kinds_kept AS (
    INSERT INTO kind_count (namespace_id, type_id, priority, version, states, jobs, blocked)
    SELECT namespace_id, type_id, priority, (SELECT version FROM noted) + 1, all_states, all_jobs,
           blocked + kept_blocked
    FROM kinds
), kinds_gone AS (
    DELETE FROM kind_count
    WHERE ctid = ANY (ARRAY(
        SELECT spot FROM kinds WHERE (SELECT count(*) FROM spaces_gone) >= 0
    ))
    RETURNING 1
), lanes_kept AS (
    INSERT INTO lane_count (lane_id, version, states, jobs, retries, waiting, total)
    SELECT lane_id, (SELECT version FROM noted) + 1, all_states, all_jobs, retries + kept_retries,
           waiting, total
    FROM lanes
), lanes_gone AS (
    DELETE FROM lane_count
    WHERE ctid = ANY (ARRAY(
        SELECT spot FROM lanes WHERE (SELECT count(*) FROM kinds_gone) >= 0
    ))
), begun AS (
    INSERT INTO lane_waiting (namespace_id, lane_id)
    SELECT namespace_id, lane_id FROM lanes
    WHERE waiting > 0 AND waited <= 0 AND namespace_id IS NOT NULL
    ON CONFLICT DO NOTHING
), over AS (
    DELETE FROM lane_waiting
    WHERE ctid = ANY (ARRAY(
        SELECT told.spot FROM lanes
        CROSS JOIN LATERAL (
            SELECT ctid AS spot FROM lane_waiting
            WHERE lane_waiting.namespace_id = lanes.namespace_id
              AND lane_waiting.lane_id = lanes.lane_id
            LIMIT 1
        ) AS told
        WHERE waiting <= 0 AND waited > 0
    ))
), advanced AS (
    INSERT INTO count_progress (version, snapshot)
    SELECT version + 1,
           coalesce((
               SELECT (coalesce(min(open), stopped.xid) || ':' || stopped.xid || ':'
                       || coalesce(string_agg(open::text, ',' ORDER BY open), ''))::pg_snapshot
               FROM (
                   SELECT xip::text::bigint AS open
                   FROM pg_snapshot_xip(pg_current_snapshot()) AS xip
               ) AS at_work
               WHERE open < stopped.xid
           ), pg_current_snapshot())
    FROM noted LEFT JOIN stopped ON true
), before AS (
    DELETE FROM count_progress WHERE ctid = ANY (ARRAY(SELECT spot FROM noted))
)
SELECT count(*)::int FROM removed
