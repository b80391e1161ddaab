-- Adds what happened to the roll-ups and gives how many rows of the log that was.
-- Parameters: spans (int[]): how long the spans are, in seconds, the shortest first; oldest
--   (timestamptz[]): of each since when it is kept; closed_until (timestamptz): longer spans that
--   ended before are summed up, and get what comes late; those of {{cells}}.
-- Index: lane_pkey, roll_up_pkey, roll_up_latency_pkey, and those of {{cells}}. Locks: the rows that
--   are added to; nobody else has any, because `roll_up_lock.sql` gives one a turn.
WITH {{cells}},
spread AS MATERIALIZED (
    SELECT lane.namespace_id, span_s, date_bin(make_interval(secs => span_s), minute, 'epoch')
           AS begins_at, lane.type_id, lane.priority, kind, bucket, n, max_us
    FROM cells
    CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = cells.lane_id OFFSET 0) AS lane
    CROSS JOIN unnest(%(spans)s::int[], %(oldest)s::timestamptz[]) AS span(span_s, oldest)
    WHERE minute >= oldest
      AND (span_s = (%(spans)s::int[])[1]
           OR date_bin(make_interval(secs => span_s), minute, 'epoch')
              + make_interval(secs => span_s) <= %(closed_until)s::timestamptz)
), counted AS (
    INSERT INTO roll_up AS stored (
        namespace_id, span_s, begins_at, type_id, priority, submitted, completed, failed,
        dead_letter, cancelled, attempts_failed)
    SELECT namespace_id, span_s, begins_at, type_id, priority,
           coalesce(sum(n) FILTER (WHERE kind = 1), 0),
           coalesce(sum(n) FILTER (WHERE kind = 3), 0),
           coalesce(sum(n) FILTER (WHERE kind = 7), 0),
           coalesce(sum(n) FILTER (WHERE kind = 4), 0),
           coalesce(sum(n) FILTER (WHERE kind = 5), 0),
           coalesce(sum(n) FILTER (WHERE kind IN (4, 6, 7)), 0)
    FROM spread
    WHERE kind <> 2
    GROUP BY namespace_id, span_s, begins_at, type_id, priority
    ON CONFLICT (namespace_id, span_s, begins_at, type_id, priority) DO UPDATE
    SET submitted = stored.submitted + excluded.submitted,
        completed = stored.completed + excluded.completed,
        failed = stored.failed + excluded.failed,
        dead_letter = stored.dead_letter + excluded.dead_letter,
        cancelled = stored.cancelled + excluded.cancelled,
        attempts_failed = stored.attempts_failed + excluded.attempts_failed
), measured AS (
    INSERT INTO roll_up_latency AS stored (
        namespace_id, span_s, begins_at, waits, buckets, counts, max_us)
    SELECT namespace_id, span_s, begins_at, waits, array_agg(bucket::smallint ORDER BY bucket),
           array_agg(n ORDER BY bucket), max(max_us)
    FROM (
        SELECT namespace_id, span_s, begins_at, kind = 2 AS waits, bucket, sum(n)::bigint AS n,
               max(max_us) AS max_us
        FROM spread
        WHERE bucket IS NOT NULL
        GROUP BY namespace_id, span_s, begins_at, kind = 2, bucket
    ) AS by_bucket
    GROUP BY namespace_id, span_s, begins_at, waits
    ON CONFLICT (namespace_id, span_s, begins_at, waits) DO UPDATE
    SET (buckets, counts) = (
            SELECT array_agg(bucket ORDER BY bucket), array_agg(n ORDER BY bucket)
            FROM (
                SELECT bucket, sum(n)::bigint AS n
                FROM (
                    SELECT unnest(stored.buckets) AS bucket, unnest(stored.counts) AS n
                    UNION ALL
                    SELECT unnest(excluded.buckets), unnest(excluded.counts)
                ) AS both_of_them GROUP BY bucket
            ) AS merged
        ),
        max_us = greatest(stored.max_us, excluded.max_us)
)
SELECT count(*) FROM fresh
