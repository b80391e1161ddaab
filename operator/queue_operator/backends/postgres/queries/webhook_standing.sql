-- How it goes with the messages of a namespace, by receiver: of the oldest that are PENDING and the newest
-- that are FAILED. Rows of pending, retrying, oldest_due_s, given_up, given_up_lately, url, error.
-- Parameters: namespace, type ('': all), lately_s (double precision), limit (int, of each state).
-- Index: webhook_listed, from either end of a state. Locks: none.
-- Trap: for the state see `webhook_list.sql`.
SELECT count(*) FILTER (WHERE state = 'PENDING')::int AS pending,
       count(*) FILTER (WHERE state = 'PENDING' AND tries > 0)::int AS retrying,
       greatest(coalesce(extract(epoch FROM now() - min(next_at)), 0), 0)::double precision
           AS oldest_due_s,
       count(*) FILTER (WHERE state = 'FAILED')::int AS given_up,
       count(*) FILTER (WHERE state = 'FAILED'
           AND last_at > now() - make_interval(secs => %(lately_s)s::double precision))::int
           AS given_up_lately,
       coalesce(max(url) FILTER (WHERE tries > 0), max(url)) AS url,
       coalesce(max(last_error) FILTER (WHERE state <> 'PENDING' OR tries > 0), '') AS error
FROM (
    (SELECT receiver, type, state, tries, next_at, last_at, url, last_error FROM webhook_message
     WHERE namespace = %(namespace)s AND state >= 'PENDING' AND state <= 'PENDING'
     ORDER BY state, number LIMIT %(limit)s::int)
    UNION ALL
    (SELECT receiver, type, state, tries, NULL, last_at, url, last_error FROM webhook_message
     WHERE namespace = %(namespace)s AND state >= 'FAILED' AND state <= 'FAILED'
     ORDER BY state DESC, number DESC LIMIT %(limit)s::int)
) AS looked_at
WHERE %(type)s::text IN ('', type)
GROUP BY receiver
