-- Messages in one state that were told for the last time until then, the oldest first. Parameters:
-- state, until, max_rows. Index: message_ended.
SELECT number, held, record FROM message
WHERE state = :state AND last_at <= :until
ORDER BY last_at
LIMIT :max_rows
