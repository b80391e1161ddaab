-- The newest messages of a namespace in one state, before a place. Parameters: namespace, state,
-- before, max_rows. Index: message_listed, from its end.
SELECT number, held, record FROM message
WHERE namespace = :namespace AND state = :state AND number < :before
ORDER BY number DESC
LIMIT :max_rows
