-- A sweep that finds nothing due: notes that it was there. Gives a row if so; otherwise, and while
-- another sweeper is at it, changes nothing, and a whole sweep has to look.
-- Parameters: lock, of the sweepers; those of `sweep_begin`.
-- Index: sweep_pkey; lease_check_due, the beginning of a range per kind; lease_check_fresh.
-- Locks: the sweepers' lock, if it is free; the row that goes.
-- Traps: another sweep may end between this statement's snapshot and its lock. The note that is to
--   be replaced is gone then, and nothing is written. What was committed late is only looked for
--   where nothing else is due.
WITH last AS MATERIALIZED (
    {{begin}}
), asked AS MATERIALIZED (
    SELECT kind, until, starts[array_position(kinds, kind)] AS mark,
           marks[array_position(kinds, kind)] AS mark_before,
           until IS NOT NULL AS is_looked_at
    FROM last CROSS JOIN LATERAL (VALUES
        ('CANCEL', cancel_before), ('CLAIM', ended_before), ('DEADLINE', deadline_before),
        ('EXHAUST', now), ('HELD', now), ('PROGRESS', now), ('RENEWAL', ended_before)
    ) AS k(kind, until)
), late AS MATERIALIZED (
    SELECT kind, min(look_at) AS look_at
    FROM (
        SELECT kind, look_at FROM lease_check
        WHERE xid >= pg_snapshot_xmax((SELECT seen::pg_snapshot FROM last))
          AND xid < pg_snapshot_xmax(pg_current_snapshot())
        UNION ALL
        SELECT kind, look_at FROM lease_check
        WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(seen::pg_snapshot) FROM last))
    ) fresh
    GROUP BY kind
), busy AS MATERIALIZED (
    SELECT FROM asked
    WHERE is_looked_at AND CASE
        WHEN EXISTS (
            SELECT FROM lease_check
            WHERE lease_check.kind = asked.kind AND look_at < asked.until
              AND look_at >= coalesce(asked.mark, '-infinity')
        ) THEN true
        ELSE EXISTS (
            SELECT FROM late
            WHERE late.kind = asked.kind AND look_at < asked.mark AND look_at < asked.until
        ) END
    LIMIT 1
), gone AS (
    DELETE FROM sweep
    WHERE number = (
        SELECT number FROM last
        WHERE CASE WHEN EXISTS (SELECT FROM busy) THEN false
                   ELSE pg_try_advisory_xact_lock(%(lock)s) END
    )
    RETURNING seen, seen_at
)
INSERT INTO sweep (number, swept_at, resumed_at, kinds, marks, seen, seen_at)
SELECT last.number + 1, last.now, last.resumed_at,
       ARRAY(SELECT kind FROM asked ORDER BY kind),
       ARRAY(SELECT CASE WHEN is_looked_at THEN until ELSE mark_before END
             FROM asked ORDER BY kind),
       CASE WHEN ended_before IS NOT NULL THEN pg_current_snapshot() ELSE gone.seen END,
       CASE WHEN ended_before IS NOT NULL THEN last.now ELSE gone.seen_at END
FROM gone CROSS JOIN last
RETURNING number
