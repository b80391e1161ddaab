-- Heartbeats of many sessions. Gives one row: whether busy or draining of any changed.
-- Parameters: session_ids text[] without repeats, busy integer[], draining boolean[].
-- Index: worker_session's primary key; the updates stay within their pages.
-- Locks: the rows in the order of their id, so that two of these never wait for each other
-- in a circle; it is the lock that fixes the order, an UPDATE alone has none.
WITH stored AS (
    SELECT session_id, given.busy, given.draining,
           (session.busy, session.draining) IS DISTINCT FROM (given.busy, given.draining)
               AS changed
    FROM unnest(%(session_ids)s::text[], %(busy)s::integer[], %(draining)s::boolean[])
        AS given (session_id, busy, draining)
    JOIN worker_session AS session USING (session_id)
    ORDER BY session_id
    FOR NO KEY UPDATE OF session
),
touched AS (
    UPDATE worker_session AS session
    SET busy = stored.busy, draining = stored.draining, heartbeat_at = now()
    FROM stored
    WHERE session.session_id = stored.session_id
    RETURNING stored.changed
)
SELECT coalesce(bool_or(changed), false) FROM touched
