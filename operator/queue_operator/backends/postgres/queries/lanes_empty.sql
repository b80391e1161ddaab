-- The lanes whose last job went since a place, in the order in which that was counted: (version,
-- lane_id) of each, the last of which is the next place.
-- Parameters: version and lane_id: the place, exclusive; max_rows.
-- Index: lane_count_empty, from the place on; those of {{tail}}. Locks: none.
-- Trap: a lane that was changed again is passed by: it will be counted anew, under a later version.
WITH {{tail}}
SELECT version, lane_id
FROM lane_count
WHERE total = 0 AND (version, lane_id) > (%(version)s::bigint, %(lane_id)s::int)
  AND (lane_id IN (SELECT lane_id FROM tail)) IS FALSE
ORDER BY version, lane_id LIMIT %(max_rows)s
