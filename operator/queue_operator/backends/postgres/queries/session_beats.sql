-- Part of others: what open sessions do, by opening, as the newest heartbeats say. No parameters.
-- Index: session_beat_pkey, the end of what each replica has there. Locks: none.
-- Trap: replicas are those that have sessions: of others there may be any number of dead rows.
heard AS MATERIALIZED (
    SELECT told.*
    FROM (SELECT DISTINCT replica FROM worker_session) AS known
    CROSS JOIN LATERAL (
        SELECT openings, busy, draining, followed, heard_at
        FROM session_beat
        WHERE session_beat.replica = known.replica
        ORDER BY number DESC LIMIT 1
    ) AS newest
    CROSS JOIN LATERAL unnest(openings, busy, draining, followed, heard_at)
        AS told (opening, busy, draining, followed, heard_at)
)
