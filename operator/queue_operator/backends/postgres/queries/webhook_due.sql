-- Makes messages due whose time has come, or whose holder counts as dead; gives one row: how many.
-- Parameters: limit (int). Index: webhook_later, then the primary key.
-- Locks: the rows that change; where another replica is at it, this finds fewer.
WITH ripe AS (
    UPDATE webhook_message SET due = true
    WHERE number = ANY (ARRAY(
        SELECT number FROM webhook_message
        WHERE NOT due AND state = 'PENDING' AND next_at <= now()
        ORDER BY next_at
        LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)::int FROM ripe
