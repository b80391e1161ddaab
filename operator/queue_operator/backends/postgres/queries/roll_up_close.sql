-- Sums up what is over: spans of one length from those of the next shorter one; gives how many.
-- Parameters: span_s, shorter_s; begins_at and ends_at (timestamptz, exclusive): full spans, none of
--   which was summed up before.
-- Index: roll_up_by_age and roll_up_latency_by_age, one range. Locks: none; nobody else adds any,
--   because `roll_up_lock.sql` gives one a turn.
WITH counted AS (
    INSERT INTO roll_up (
        namespace_id, span_s, begins_at, type_id, priority, submitted, completed, failed,
        dead_letter, cancelled, attempts_failed)
    SELECT namespace_id, %(span_s)s::int,
           date_bin(make_interval(secs => %(span_s)s::int), begins_at, 'epoch'), type_id, priority,
           sum(submitted), sum(completed), sum(failed), sum(dead_letter), sum(cancelled),
           sum(attempts_failed)
    FROM roll_up
    WHERE span_s = %(shorter_s)s AND span_s > 0
      AND begins_at >= %(begins_at)s AND begins_at < %(ends_at)s
    GROUP BY namespace_id, 3, type_id, priority
    ON CONFLICT DO NOTHING
    RETURNING 1
), measured AS (
    INSERT INTO roll_up_latency (
        namespace_id, span_s, begins_at, waits, buckets, counts, max_us)
    SELECT namespace_id, %(span_s)s::int, begins_at, waits, array_agg(bucket ORDER BY bucket),
           array_agg(n ORDER BY bucket), max(max_us)
    FROM (
        SELECT namespace_id,
               date_bin(make_interval(secs => %(span_s)s::int), begins_at, 'epoch') AS begins_at,
               waits, bucket, sum(n)::bigint AS n, max(max_us) AS max_us
        FROM roll_up_latency
        CROSS JOIN LATERAL unnest(buckets, counts) AS took(bucket, n)
        WHERE span_s = %(shorter_s)s AND span_s > 0
          AND begins_at >= %(begins_at)s AND begins_at < %(ends_at)s
        GROUP BY namespace_id, 2, waits, bucket
    ) AS by_bucket
    GROUP BY namespace_id, begins_at, waits
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM counted)::int + (SELECT count(*) FROM measured)::int
