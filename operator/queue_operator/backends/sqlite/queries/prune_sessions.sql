-- Removes sessions that have been silent since a time: their process died without closing them.
-- Parameters: since. No index: there are few.
DELETE FROM session WHERE heartbeat_at < :since
