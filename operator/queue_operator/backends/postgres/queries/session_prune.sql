-- Removes sessions whose process died without closing them.
-- Parameters: max_age_s double precision. No index: one row per connected worker process.
-- Locks: the rows that go; those being touched right now are alive and are passed over.
DELETE FROM worker_session
WHERE session_id IN (
    SELECT session_id
    FROM worker_session
    WHERE heartbeat_at < now() - make_interval(secs => %(max_age_s)s::double precision)
    FOR UPDATE SKIP LOCKED
)
