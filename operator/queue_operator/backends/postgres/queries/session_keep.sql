-- Heartbeats of all sessions of a replica that were not ended, if they are those that it has open
-- and have no order beyond the one followed. Gives one row: whether they were, and no other heartbeat of
-- the replica came at the same time.
-- Parameters: replica; count and mark, as SessionRoll has them; kept_for_s: what is silent for longer
--   is not looked at.
-- Index: worker_session has a row per connected worker process and is read whole; session_beat_pkey,
--   the end of what the replica has there.
-- Locks: that row, which is removed; who had to wait for it finds it gone.
-- Trap: a session and what is said of it are brought together by a GROUP BY: a join without an index
--   is the square of them.
WITH last AS MATERIALIZED (
    SELECT ctid AS spot, number, openings, busy, draining, followed, heard_at
    FROM session_beat
    WHERE replica = %(replica)s
    ORDER BY number DESC LIMIT 1
),
stored AS MATERIALIZED (
    SELECT opening, max(mark) AS mark, max(followed) AS followed, max(heard_at) AS heard_at,
           coalesce(max(busy) FILTER (WHERE is_told), max(busy)) AS busy,
           coalesce(bool_or(draining) FILTER (WHERE is_told), bool_or(draining)) AS draining,
           NOT bool_or(ended) AND max(order_number) = max(followed)
               AND max(heard_at) > now() - make_interval(secs => %(kept_for_s)s) AS is_mine
    FROM (
        SELECT opening, false AS is_told, busy, draining, 0 AS followed, connected_at AS heard_at,
               ended, order_number,
               ('x' || left(encode(sha256(convert_to(connection, 'UTF8')), 'hex'), 12))
                   ::bit(48)::bigint AS mark
        FROM worker_session
        WHERE replica = %(replica)s
        UNION ALL
        SELECT told.opening, true, told.busy, told.draining, told.followed, told.heard_at,
               NULL, NULL, NULL
        FROM last
        CROSS JOIN LATERAL unnest(openings, busy, draining, followed, heard_at)
            AS told (opening, busy, draining, followed, heard_at)
    ) AS said
    GROUP BY opening
    HAVING NOT bool_and(is_told)
),
roll AS MATERIALIZED (
    SELECT count(*) = %(count)s AND sum(mark) = %(mark)s AS is_the_same FROM stored WHERE is_mine
),
gone AS (
    DELETE FROM session_beat
    WHERE ctid = ANY (ARRAY(SELECT spot FROM last WHERE (SELECT is_the_same FROM roll)))
    RETURNING 1
),
added AS (
    INSERT INTO session_beat (replica, number, openings, busy, draining, followed, heard_at)
    SELECT %(replica)s,
           coalesce((SELECT greatest(number + 1, (extract(epoch FROM now()) * 1000)::bigint)
                     FROM last), 0),
           array_agg(opening), array_agg(busy), array_agg(draining), array_agg(followed),
           array_agg(CASE WHEN is_mine THEN now() ELSE heard_at END)
    FROM stored
    HAVING (SELECT is_the_same FROM roll)
       AND (EXISTS (SELECT FROM gone) OR NOT EXISTS (SELECT FROM last))
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT EXISTS (SELECT FROM added)
