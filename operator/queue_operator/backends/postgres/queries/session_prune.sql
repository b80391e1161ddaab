-- Removes sessions whose process died without closing them, and what is left of replicas that have
-- none. Gives one row: how many sessions.
-- Parameters: max_age_s double precision.
-- Index: worker_session has a row per connected worker process and is read whole; {{beats}};
--   session_beat_pkey, from the end of one replica to that of the one below it.
-- Locks: the rows that go; sessions being opened right now are alive and are passed over.
-- Trap: a session is opened again under the same id, so the lock looks at its time once more.
WITH RECURSIVE {{beats}},
replicas AS (
    SELECT (SELECT replica FROM session_beat ORDER BY replica DESC, number DESC LIMIT 1) AS name
    UNION ALL
    SELECT (SELECT replica FROM session_beat WHERE replica < replicas.name
            ORDER BY replica DESC, number DESC LIMIT 1)
    FROM replicas WHERE name IS NOT NULL
),
left_over AS (
    DELETE FROM session_beat
    WHERE replica = ANY (ARRAY(
        SELECT name FROM replicas
        WHERE (name IN (SELECT replica FROM worker_session)) IS NOT TRUE AND name IS NOT NULL
    ))
),
gone AS (
    DELETE FROM worker_session
    WHERE session_id = ANY (ARRAY(
        SELECT session_id
        FROM worker_session
        WHERE connected_at < now() - make_interval(secs => %(max_age_s)s::double precision)
          AND (opening IN (
                  SELECT opening FROM heard
                  WHERE heard_at >= now() - make_interval(secs => %(max_age_s)s::double precision)
              )) IS NOT TRUE
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)::int FROM gone
