-- Heartbeats of many sessions, but for those that another connection has. Gives one row: whether
-- busy, draining or followed of any changed.
-- Parameters: session_ids text[], sorted and without repeats; connections text[], busy integer[],
-- draining boolean[] and followed integer[], as long.
-- Index: worker_session's primary key; the updates stay within their pages.
-- Locks: the rows in the order given, so that two of these never wait for each other in a
-- circle; it is the lock that fixes the order, an UPDATE alone has none.
-- Trap: a plan from when the table was small starts from the table and looks through all that
-- is given for each of its rows. The lock inside LATERAL keeps the first step from that, the
-- ARRAY the second from reading more than is given.
WITH stored AS MATERIALIZED (
    SELECT session.session_id, given.busy, given.draining, given.followed,
           (session.busy, session.draining, session.followed)
               IS DISTINCT FROM (given.busy, given.draining, given.followed) AS changed
    FROM unnest(%(session_ids)s::text[], %(connections)s::text[], %(busy)s::integer[],
                %(draining)s::boolean[], %(followed)s::integer[])
        AS given (session_id, connection, busy, draining, followed)
    CROSS JOIN LATERAL (
        SELECT session_id, busy, draining, followed
        FROM worker_session
        WHERE worker_session.session_id = given.session_id
          AND worker_session.connection = given.connection
        FOR NO KEY UPDATE
    ) AS session
),
touched AS (
    UPDATE worker_session AS session
    SET busy = stored.busy, draining = stored.draining, followed = stored.followed,
        heartbeat_at = now()
    FROM stored
    WHERE session.session_id = stored.session_id
      AND session.session_id = ANY (ARRAY (SELECT session_id FROM stored))
    RETURNING stored.changed
)
SELECT coalesce(bool_or(changed), false) FROM touched
