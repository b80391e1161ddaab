-- Stores a session, or replaces the one with its id. Parameters: session_id, heartbeat_at, record.
INSERT INTO session VALUES (:session_id, :heartbeat_at, :record)
ON CONFLICT (session_id) DO UPDATE
SET heartbeat_at = excluded.heartbeat_at, record = excluded.record
