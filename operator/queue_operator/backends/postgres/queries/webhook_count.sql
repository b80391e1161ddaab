-- How many messages of a namespace a change would find: of those named, or else of some states.
-- Parameters: namespace, states (text[]), numbers (bigint[]; NULL: all) and, aligned with them,
--   salts (uuid[]); limit (int).
-- Index: the primary key, or webhook_listed. Locks: none.
-- Traps: for the state of all see `webhook_list.sql`. IS TRUE keeps webhook_listed from being asked
--   for each of those named, and OFFSET 0 the whole table from being joined with them.
SELECT count(*)::int FROM (
    SELECT 1
    FROM unnest(%(numbers)s::bigint[], %(salts)s::uuid[]) AS named(number, salt)
    CROSS JOIN LATERAL (
        SELECT 1 FROM webhook_message
        WHERE webhook_message.number = named.number AND webhook_message.salt = named.salt
          AND (namespace = %(namespace)s AND state = ANY (%(states)s::text[])) IS TRUE
        OFFSET 0
    ) found
    UNION ALL
    SELECT 1 FROM unnest(
        CASE WHEN %(numbers)s::bigint[] IS NULL THEN %(states)s::text[] END
    ) AS wanted(state) CROSS JOIN LATERAL (
        SELECT 1 FROM webhook_message
        WHERE namespace = %(namespace)s AND webhook_message.state >= wanted.state
          AND webhook_message.state <= wanted.state
        ORDER BY webhook_message.state, number LIMIT %(limit)s::int
    ) found
    LIMIT %(limit)s::int
) chosen
