-- How many messages there are, by namespace and state: rows of namespace, state, number of messages.
-- The first is about none: '', '', for how many seconds the oldest is due.
-- Index: webhook_due_since, from its beginning; the counts are few, and read whole. Locks: none.
SELECT '' AS namespace, '' AS state, coalesce(greatest(extract(epoch FROM now() - (
    SELECT next_at FROM webhook_message WHERE due AND next_at <= now() ORDER BY next_at LIMIT 1
)), 0), 0)::double precision AS messages
UNION ALL
SELECT namespace, state, sum(messages)::double precision FROM webhook_count
GROUP BY namespace, state HAVING sum(messages) > 0
