-- How many messages there are, by namespace and state: rows of namespace, state, number of messages.
-- One more is about none: '', '', for how many seconds the oldest is due.
-- Index: webhook_due, a look for each receiver that has something due, and one for its first message;
--   the counts are few, and read whole. Locks: none.
-- Trap: an index on the time would say it at once, and each end of a job would have to write it.
WITH RECURSIVE receivers AS (
    (SELECT receiver, next_at FROM webhook_message
     WHERE due AND receiver >= -9223372036854775808 ORDER BY receiver, number LIMIT 1)
    UNION ALL
    SELECT following.receiver, following.next_at FROM receivers CROSS JOIN LATERAL (
        SELECT receiver, next_at FROM webhook_message
        WHERE due AND receiver > receivers.receiver ORDER BY receiver, number LIMIT 1
    ) following
)
SELECT '' AS namespace, '' AS state,
       coalesce(greatest(extract(epoch FROM now() - min(next_at)), 0), 0)::double precision
           AS messages
FROM receivers
UNION ALL
SELECT namespace, state, sum(messages)::double precision FROM webhook_count
GROUP BY namespace, state HAVING sum(messages) > 0
