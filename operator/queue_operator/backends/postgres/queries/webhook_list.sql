-- The newest messages of a namespace, in some states, before a place.
-- Parameters: namespace, states (text[]), before (bigint), limit (int).
-- Index: webhook_listed, in each state from the place on. Locks: none.
-- Trap: were the state said to be equal, the numbers alone would be the order, and the primary key could
--   be read for it, past all that is not wanted.
SELECT found.* FROM unnest(%(states)s::text[]) AS wanted(state) CROSS JOIN LATERAL (
    SELECT {{columns}} FROM webhook_message
    WHERE namespace = %(namespace)s AND webhook_message.state >= wanted.state
      AND (webhook_message.state, number) < (wanted.state, %(before)s::bigint)
    ORDER BY webhook_message.state DESC, number DESC
    LIMIT %(limit)s::int
) found
ORDER BY number DESC
LIMIT %(limit)s::int
