-- Copies what was counted, and how long it took, of each minute into the `minutes` before it.
-- Parameters: minutes.
-- Traps: of the sample there are a minute or two, whose copies would meet.
WITH counted AS (
    INSERT INTO roll_up
    SELECT namespace_id, span_s, begins_at - copy * interval '1 minute', type_id, priority,
           submitted, completed, failed, dead_letter, cancelled, attempts_failed
    FROM roll_up CROSS JOIN generate_series(1, %(minutes)s) AS copy WHERE span_s = 60
    ON CONFLICT DO NOTHING
)
INSERT INTO roll_up_latency
SELECT namespace_id, span_s, begins_at - copy * interval '1 minute', waits, buckets, counts, max_us
FROM roll_up_latency CROSS JOIN generate_series(1, %(minutes)s) AS copy WHERE span_s = 60
ON CONFLICT DO NOTHING
