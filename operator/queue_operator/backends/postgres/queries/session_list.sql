-- Open sessions.
-- Parameters: max_age_s double precision, NULL for all.
-- Index: worker_session has a row per connected worker process and is read whole; {{beats}}.
-- Locks: none.
-- Trap: a join without an index is the square of the sessions. Sorted arrays are searched by halves,
--   once they are made: of a stored one each look would unpack the whole.
WITH {{beats}},
sorted AS MATERIALIZED (
    SELECT array_agg(opening ORDER BY opening) AS openings,
           array_agg(busy ORDER BY opening) AS busy,
           array_agg(draining ORDER BY opening) AS draining,
           array_agg(followed ORDER BY opening) AS followed,
           array_agg(heard_at ORDER BY opening) AS heard_at
    FROM heard
)
SELECT session_id, namespace, worker_name, pod_uid, host, replica, tags, types, capacity,
       coalesce(sorted.busy[place], session.busy) AS busy,
       coalesce(sorted.draining[place], session.draining) AS draining, version, connection,
       wanted_capacity, wanted_tags, wanted_drain, order_number,
       coalesce(sorted.followed[place], 0) AS followed, shown, connected_at,
       coalesce(sorted.heard_at[place], connected_at) AS heartbeat_at
FROM worker_session AS session
CROSS JOIN sorted
CROSS JOIN LATERAL (
    SELECT CASE WHEN openings[near] = opening THEN near END AS place
    FROM (SELECT width_bucket(opening, openings) AS near OFFSET 0) AS searched
    OFFSET 0
) AS found
WHERE NOT ended
  AND (%(max_age_s)s::double precision IS NULL
       OR coalesce(sorted.heard_at[place], connected_at)
          >= now() - make_interval(secs => %(max_age_s)s::double precision))
ORDER BY namespace, worker_name, connected_at, session_id
