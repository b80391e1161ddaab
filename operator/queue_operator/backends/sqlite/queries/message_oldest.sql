-- The oldest messages of a namespace in one state. Parameters: namespace, state, max_rows.
-- Index: message_listed.
SELECT number, held, record FROM message
WHERE namespace = :namespace AND state = :state
ORDER BY number
LIMIT :max_rows
