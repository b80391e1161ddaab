-- What the streams of some sessions do not know yet: that a session is gone (its columns are NULL),
-- that another connection has it, that it was ended, or a newer order than the one they follow.
-- Parameters: session_ids text[], connections text[] and followed integer[], as long.
-- Index: worker_session's primary key. No locks.
SELECT given.session_id, session.connection, session.wanted_capacity, session.wanted_tags,
       session.wanted_drain, coalesce(session.ended, false), coalesce(session.order_number, 0)
FROM unnest(%(session_ids)s::text[], %(connections)s::text[], %(followed)s::integer[])
    AS given (session_id, connection, followed)
LEFT JOIN LATERAL (
    SELECT * FROM worker_session WHERE worker_session.session_id = given.session_id LIMIT 1
) AS session ON true
WHERE session.session_id IS NULL
   OR session.ended
   OR session.connection <> given.connection
   OR session.order_number <> given.followed
