-- Sessions that were heard of since a time. Parameters: since. No index: there are few.
SELECT record FROM session WHERE heartbeat_at >= :since
