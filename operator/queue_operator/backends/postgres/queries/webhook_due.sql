-- Makes messages due whose time has come, or whose holder counts as dead; gives one row: how many, and
-- what time it was.
-- Parameters: limit (int), after (timestamptz: what was due by then was found before).
-- Index: webhook_later, then the primary key.
-- Locks: the rows that change; where another replica is at it, this finds fewer.
-- Traps: nothing waits until this is on disk: lost, it is done again. Dead rows before the place given
--   are not passed by, however long a snapshot keeps them.
WITH ripe AS (
    UPDATE webhook_message SET due = true
    WHERE number = ANY (ARRAY(
        SELECT number FROM webhook_message
        WHERE NOT due AND state = 'PENDING' AND next_at > %(after)s::timestamptz AND next_at <= now()
        ORDER BY next_at
        LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)::int, now(), {{soon}} FROM ripe
