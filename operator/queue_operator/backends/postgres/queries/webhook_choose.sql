-- Part of statements that change messages of a namespace: those named, or else the oldest of some
-- states. Parameters: namespace, states (text[]), numbers (bigint[]; NULL: all) and, aligned with
--   them, salts (uuid[]); limit (int).
-- Index: the primary key, or webhook_listed. Locks: the messages, the lowest number first.
-- Traps: for the state see `webhook_list.sql`. The rows are locked before they are changed, and looked at once more, so that of two who
--   do the same one counts them. IS TRUE keeps webhook_listed out of that, which would be asked for
--   each state.
chosen AS MATERIALIZED (
    SELECT number, state FROM webhook_message
    WHERE number = ANY (ARRAY(
        SELECT found.number
        FROM unnest(%(numbers)s::bigint[], %(salts)s::uuid[]) AS named(number, salt)
        CROSS JOIN LATERAL (
            SELECT number FROM webhook_message WHERE webhook_message.number = named.number
                AND webhook_message.salt = named.salt
        ) found
        UNION ALL
        SELECT found.number FROM unnest(
            CASE WHEN %(numbers)s::bigint[] IS NULL THEN %(states)s::text[] END
        ) AS wanted(state) CROSS JOIN LATERAL (
            SELECT number FROM webhook_message
            WHERE namespace = %(namespace)s AND webhook_message.state >= wanted.state
              AND webhook_message.state <= wanted.state
            ORDER BY webhook_message.state, number LIMIT %(limit)s::int
        ) found
        ORDER BY number LIMIT %(limit)s::int
    ))
      AND (namespace = %(namespace)s AND state = ANY (%(states)s::text[])) IS TRUE
    ORDER BY number
    FOR UPDATE
)
