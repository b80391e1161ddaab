-- Deletes messages that were delivered, or given up, so long ago. Gives one row: how many of each, and
-- until when they had ended.
-- Parameters: delivered_s, failed_s, limit; delivered_after, failed_after (timestamptz: what ended until
--   then was pruned before). Index: webhook_ended, then the primary key.
-- Locks: the rows that go; where another is at it, this finds fewer.
-- Trap: dead rows before the places given are not passed by, however long a snapshot keeps them.
WITH gone AS (
    DELETE FROM webhook_message
    WHERE number = ANY (ARRAY(
        SELECT number FROM webhook_message
        WHERE state = 'DELIVERED' AND last_at > %(delivered_after)s::timestamptz
          AND last_at <= now() - make_interval(secs => %(delivered_s)s::double precision)
        ORDER BY last_at LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ) || ARRAY(
        SELECT number FROM webhook_message
        WHERE state = 'FAILED' AND last_at > %(failed_after)s::timestamptz
          AND last_at <= now() - make_interval(secs => %(failed_s)s::double precision)
        ORDER BY last_at LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING namespace, state
), counted AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT namespace, state, -count(*) FROM gone GROUP BY namespace, state
)
SELECT count(*) FILTER (WHERE state = 'DELIVERED')::int,
       count(*) FILTER (WHERE state = 'FAILED')::int,
       now() - make_interval(secs => %(delivered_s)s::double precision),
       now() - make_interval(secs => %(failed_s)s::double precision)
FROM gone
