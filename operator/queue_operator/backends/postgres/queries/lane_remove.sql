-- Removes retired lanes that still have no jobs and that nobody notes as used, with what was counted
-- there; gives how many. Parameters: unused_s; max_rows.
-- Index: lane_retired; lane_count_pkey; the changes not yet folded are read whole. Locks: the lanes.
-- Traps: the log names lanes by number, so none goes before the roll-ups have seen its retirement,
--   and with that all that was logged of it before. A lane that is noted meanwhile stays.
WITH old AS MATERIALIZED (
    SELECT id FROM lane
    WHERE retired IS NOT NULL
      AND pg_visible_in_snapshot(retired, (SELECT snapshot FROM roll_up_progress))
    ORDER BY id LIMIT %(max_rows)s
), empty AS MATERIALIZED (
    SELECT id FROM old
    WHERE NOT EXISTS (
              SELECT FROM lane_count
              WHERE lane_count.lane_id = old.id AND lane_count.jobs <> 0 OFFSET 0
          )
      AND (id IN (SELECT lane_id FROM count_delta)) IS NOT TRUE
), gone AS (
    DELETE FROM lane
    WHERE id = ANY (ARRAY(SELECT id FROM empty)) AND retired IS NOT NULL
      AND used_at < now() - make_interval(secs => %(unused_s)s)
    RETURNING id
), counts AS (
    DELETE FROM lane_count WHERE lane_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT count(*)::int FROM gone
