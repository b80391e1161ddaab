-- Retires lanes that nobody noted as used for long and that have no jobs. Gives how many were looked at,
-- how many retired, and the last one looked at: the next look begins behind it.
-- Parameters: used_after (timestamptz) and id_after: where to begin; unused_s; max_rows.
-- Index: lane_by_use; those of {{tail}} and {{empty}}. Locks: the lanes.
-- Traps: what has jobs stays in front for ever, so whoever looks goes on and begins anew at the end.
--   A lane that somebody notes meanwhile is not retired: its row is looked at again under its lock.
--   In a restored copy a lane may have been retired by a transaction that is to come: it is again.
WITH {{tail}}, old AS MATERIALIZED (
    SELECT id, used_at FROM lane
    WHERE (used_at, id + 0) > (%(used_after)s::timestamptz, %(id_after)s::int)
      AND used_at < now() - make_interval(secs => %(unused_s)s)
    ORDER BY used_at, id + 0 LIMIT %(max_rows)s
), {{empty}}, retired AS (
    UPDATE lane SET retired = pg_current_xact_id()
    WHERE id = ANY (ARRAY(SELECT id FROM empty))
      AND (retired IS NULL OR retired >= pg_snapshot_xmax(pg_current_snapshot()))
      AND used_at < now() - make_interval(secs => %(unused_s)s)
    RETURNING id
)
SELECT (SELECT count(*) FROM old)::int, (SELECT count(*) FROM retired)::int, last.used_at, last.id
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (SELECT used_at, id FROM old ORDER BY used_at DESC, id DESC LIMIT 1) AS last ON true
