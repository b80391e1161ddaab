-- The newest messages of a namespace, in some states, before a place.
-- Parameters: namespace, states (text[]), before (bigint), limit (int).
-- Index: webhook_listed, from the end of each state. Locks: none.
SELECT found.* FROM unnest(%(states)s::text[]) AS wanted(state) CROSS JOIN LATERAL (
    SELECT {{columns}} FROM webhook_message
    WHERE namespace = %(namespace)s AND webhook_message.state = wanted.state
      AND number < %(before)s::bigint
    ORDER BY number DESC
    LIMIT %(limit)s::int
) found
ORDER BY number DESC
LIMIT %(limit)s::int
