-- Removes retired lanes that still have no jobs and that nobody notes as used; gives their numbers and
-- what they were of. Their counts go in the same transaction (`count_forget.sql`). Parameters:
--   unused_s; max_rows.
-- Index: lane_retired; job_event_by_xid; roll_up_progress_pkey, from the end; those of {{tail}} and
--   {{empty}}.
-- Locks: the lanes.
-- Traps: the log names lanes by number, so none goes before the roll-ups have seen its retirement,
--   and with that all that was logged of it before. While nothing is logged they do not go on: then
--   they have all there is, and all that could be logged before is known. A lane that is noted
--   meanwhile stays.
WITH {{tail}}, rolled AS MATERIALIZED (
    SELECT snapshot,
           NOT EXISTS (SELECT FROM job_event WHERE xid >= pg_snapshot_xmax(snapshot))
           AND NOT EXISTS (
               SELECT FROM job_event
               WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(snapshot)))
           ) AS is_all
    FROM roll_up_progress ORDER BY version DESC LIMIT 1
), old AS MATERIALIZED (
    SELECT id FROM lane
    WHERE retired IS NOT NULL
      AND (pg_visible_in_snapshot(retired, (SELECT snapshot FROM rolled))
           OR retired < pg_snapshot_xmin(pg_current_snapshot()) AND (SELECT is_all FROM rolled))
    ORDER BY id LIMIT %(max_rows)s
), {{empty}}, gone AS (
    DELETE FROM lane
    WHERE id = ANY (ARRAY(SELECT id FROM empty)) AND retired IS NOT NULL
      AND used_at < now() - make_interval(secs => %(unused_s)s)
    RETURNING id, namespace_id, type_id, priority
)
SELECT id, namespace_id, type_id, priority FROM gone
