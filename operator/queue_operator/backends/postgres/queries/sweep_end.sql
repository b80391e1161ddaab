-- Notes how far a sweep has got, and removes the note before it.
-- Parameters: number, the last one; resumed_at; kinds (text[]), marks (timestamptz[]), seen
--   (text), seen_now: whether the snapshot is of this sweep, and not that of the one before.
-- Index: sweep_pkey. Locks: the row that goes; the caller holds the sweepers' lock.
WITH gone AS (
    DELETE FROM sweep WHERE number = %(number)s::bigint RETURNING seen, seen_at
)
INSERT INTO sweep (number, swept_at, resumed_at, kinds, marks, seen, seen_at)
SELECT %(number)s::bigint + 1, now(), %(resumed_at)s, %(kinds)s::text[],
       %(marks)s::timestamptz[],
       CASE WHEN %(seen_now)s THEN %(seen)s::pg_snapshot ELSE gone.seen END,
       CASE WHEN %(seen_now)s THEN now() ELSE gone.seen_at END
FROM gone
