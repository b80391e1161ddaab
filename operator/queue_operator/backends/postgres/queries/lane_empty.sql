-- Part of others: which of the lanes `old` have no job in any state, and no change that is not counted.
-- Parameters: none; it reads `old` and `tail`. Index: lane_count_pkey, of each from the end.
empty AS MATERIALIZED (
    SELECT id FROM old
    WHERE (id IN (SELECT lane_id FROM tail)) IS NOT TRUE
      AND coalesce((
          SELECT total FROM lane_count
          WHERE lane_count.lane_id = old.id ORDER BY version DESC LIMIT 1
      ), 0) = 0
)
