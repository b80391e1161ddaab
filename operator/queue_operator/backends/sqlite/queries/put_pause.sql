-- Pauses something. Parameters: namespace, type, reason, paused_by, since.
INSERT INTO pause VALUES (:namespace, :type, :reason, :paused_by, :since)
ON CONFLICT (namespace, type)
DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by, since = excluded.since
