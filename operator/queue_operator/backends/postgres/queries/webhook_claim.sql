-- Takes due messages for a holder, for a while: of each receiver the oldest first, all receivers in turn.
-- Parameters: after (bigint, the receiver that had the last turn), visits (how many receivers are looked
--   at), full (bigint[], receivers that get none), per_receiver, limit (int), holder, lease_s.
-- Index: webhook_due: a look for each receiver, and then for the messages taken; the primary key.
-- Locks: the rows taken, and about as many more of the receivers that are looked at: whoever claims at
--   the same time passes them by.
-- Traps: nothing waits until this is on disk: lost, they are told again, under their ids.
--   A receiver that is full is passed with one look like all others: it may be the one with the
--   most messages. What another has locked is passed by within its receiver alone. The turns go once
--   around the circle of numbers, beginning after the last one. Were the receiver said to be equal,
--   the primary key could be read for the order.
WITH RECURSIVE forth AS (
    (SELECT receiver FROM webhook_message WHERE due AND receiver > %(after)s::bigint
     ORDER BY receiver, number LIMIT 1)
    UNION ALL
    SELECT (SELECT receiver FROM webhook_message WHERE due AND receiver > forth.receiver
            ORDER BY receiver, number LIMIT 1)
    FROM forth WHERE forth.receiver IS NOT NULL
), around AS (
    (SELECT receiver FROM webhook_message WHERE due AND receiver <= %(after)s::bigint
     ORDER BY receiver, number LIMIT 1)
    UNION ALL
    SELECT (SELECT receiver FROM webhook_message
            WHERE due AND receiver > around.receiver AND receiver <= %(after)s::bigint
            ORDER BY receiver, number LIMIT 1)
    FROM around WHERE around.receiver IS NOT NULL
), turns AS MATERIALIZED (
    SELECT receiver, row_number() OVER () AS turn
    FROM (SELECT receiver FROM forth WHERE receiver IS NOT NULL
          UNION ALL
          SELECT receiver FROM around WHERE receiver IS NOT NULL
          LIMIT %(visits)s::int) AS met
), oldest AS MATERIALIZED (
    SELECT turns.receiver, turns.turn, head.number
    FROM turns CROSS JOIN LATERAL (
        SELECT number FROM webhook_message
        WHERE due AND webhook_message.receiver >= turns.receiver
          AND webhook_message.receiver <= turns.receiver
        ORDER BY webhook_message.receiver, number
        LIMIT (SELECT least(%(per_receiver)s::int,
                            (2 * %(limit)s::int + count(*) - 1) / greatest(count(*), 1)) FROM turns)
        FOR UPDATE SKIP LOCKED
    ) head
    WHERE turns.receiver <> ALL (%(full)s::bigint[])
), chosen AS MATERIALIZED (
    SELECT number, turn, row_number() OVER (PARTITION BY receiver ORDER BY number) AS place
    FROM oldest
    ORDER BY place, turn
    LIMIT %(limit)s::int
), taken AS (
    UPDATE webhook_message
    SET due = false, holder = %(holder)s, claim = claim + 1,
        next_at = now() + make_interval(secs => %(lease_s)s::double precision)
    WHERE number = ANY (ARRAY(SELECT number FROM chosen))
    RETURNING {{columns}}
), soon AS MATERIALIZED (
    SELECT {{soon}} FROM taken LIMIT 1
)
SELECT taken.* FROM taken CROSS JOIN soon ORDER BY number
