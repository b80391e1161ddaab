-- Heartbeats of many sessions, but for those that another connection has. Gives one row: whether
-- busy, draining or followed of any changed, and whether it was stored: not so where another did the
-- same for a replica at the same time, and then this is to be asked again.
-- Parameters: session_ids text[], without repeats; connections text[], busy integer[], draining
--   boolean[] and followed integer[], as long.
-- Index: worker_session_pkey; session_beat_pkey, the end of what the sessions' replica has there.
-- Locks: that row, which is removed; who had to wait for it finds it gone. Rows of sessions are not
--   locked: if one is opened meanwhile, what is said of its last opening is no longer looked at.
-- Traps: a plan from when the table was small would start from the table; the LIMIT in LATERAL keeps
--   it from that. The first row of a replica has the number 0, whoever writes it, so that of two the
--   key refuses one; they do not notice each other if a third has already removed the first: the
--   next heartbeat then says what is missing. (greatest() passes over NULL: by itself it would give two
--   first rows two times.) All later numbers are above the time, hence above what is dead of a
--   replica of that name that went.
WITH found AS MATERIALIZED (
    SELECT session.opening, session.replica, given.busy, given.draining, given.followed,
           session.busy AS opened_busy, session.draining AS opened_draining
    FROM unnest(%(session_ids)s::text[], %(connections)s::text[], %(busy)s::integer[],
                %(draining)s::boolean[], %(followed)s::integer[])
        AS given (session_id, connection, busy, draining, followed)
    CROSS JOIN LATERAL (
        SELECT opening, replica, connection, busy, draining
        FROM worker_session
        WHERE worker_session.session_id = given.session_id
        LIMIT 1
    ) AS session
    WHERE session.connection = given.connection
),
last AS MATERIALIZED (
    SELECT mine.replica, newest.*
    FROM (SELECT DISTINCT replica FROM found) AS mine
    LEFT JOIN LATERAL (
        SELECT ctid AS spot, number, openings, busy, draining, followed, heard_at
        FROM session_beat
        WHERE session_beat.replica = mine.replica
        ORDER BY number DESC LIMIT 1
    ) AS newest ON true
),
heard AS MATERIALIZED (
    SELECT last.replica, told.*
    FROM last
    CROSS JOIN LATERAL unnest(openings, busy, draining, followed, heard_at)
        AS told (opening, busy, draining, followed, heard_at)
),
gone AS (
    DELETE FROM session_beat WHERE ctid = ANY (ARRAY(SELECT spot FROM last)) RETURNING replica
),
added AS (
    INSERT INTO session_beat (replica, number, openings, busy, draining, followed, heard_at)
    SELECT replica,
           (SELECT CASE WHEN number IS NULL THEN 0
                        ELSE greatest(number + 1, (extract(epoch FROM now()) * 1000)::bigint) END
            FROM last WHERE last.replica = told.replica),
           array_agg(opening), array_agg(busy), array_agg(draining), array_agg(followed),
           array_agg(heard_at)
    FROM (
        SELECT replica, opening, busy, draining, followed, now() AS heard_at FROM found
        UNION ALL
        SELECT replica, opening, busy, draining, followed, heard_at FROM heard
        WHERE (opening IN (SELECT opening FROM found)) IS NOT TRUE
          AND (opening IN (SELECT opening FROM worker_session)) IS TRUE
    ) AS told
    GROUP BY replica
    HAVING replica IN (SELECT replica FROM gone UNION ALL
                       SELECT replica FROM last WHERE spot IS NULL)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT EXISTS (
           SELECT opening, busy, draining, followed FROM found
           EXCEPT (
               SELECT opening, busy, draining, followed FROM heard
               UNION ALL
               SELECT opening, opened_busy, opened_draining, 0 FROM found
               WHERE (opening IN (SELECT opening FROM heard)) IS NOT TRUE
           )
       ),
       (SELECT count(*) FROM added) = (SELECT count(*) FROM last)
