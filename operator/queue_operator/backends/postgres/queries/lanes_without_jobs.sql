-- Which of some lanes have no job in any state, and no change that is not counted yet: so whoever
-- has kept everybody from adding one until here knows that they are empty.
-- Parameters: lanes (int[]). Index: of each lane the newest version of its count, by lane_count_pkey;
--   those of {{tail}}. Locks: none.
WITH {{tail}}
SELECT asked.lane_id
FROM unnest(%(lanes)s::int[]) AS asked(lane_id)
WHERE (asked.lane_id IN (SELECT lane_id FROM tail)) IS FALSE
  AND coalesce((
      SELECT total FROM lane_count
      WHERE lane_count.lane_id = asked.lane_id ORDER BY version DESC LIMIT 1
  ), 0) = 0
