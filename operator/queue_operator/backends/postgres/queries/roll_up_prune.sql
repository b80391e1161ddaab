-- Forgets roll-ups that are too old, and gives how many. Parameters: spans (int[]), and oldest
-- (timestamptz[]): of each since when it is kept; max_rows.
-- Index: roll_up_by_age and roll_up_latency_by_age, one range per span. Locks: the rows; nobody else
--   has any, because `roll_up_lock.sql` gives one a turn.
WITH old AS MATERIALIZED (
    SELECT found.spot
    FROM unnest(%(spans)s::int[], %(oldest)s::timestamptz[]) AS span(span_s, oldest)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot FROM roll_up
        WHERE roll_up.span_s = span.span_s AND roll_up.span_s > 0 AND begins_at < span.oldest
        ORDER BY begins_at LIMIT %(max_rows)s
    ) AS found
), old_latency AS MATERIALIZED (
    SELECT found.spot
    FROM unnest(%(spans)s::int[], %(oldest)s::timestamptz[]) AS span(span_s, oldest)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot FROM roll_up_latency AS kept
        WHERE kept.span_s = span.span_s AND kept.span_s > 0 AND begins_at < span.oldest
        ORDER BY begins_at LIMIT %(max_rows)s
    ) AS found
), gone AS (
    DELETE FROM roll_up WHERE ctid = ANY (ARRAY(SELECT spot FROM old)) RETURNING 1
), gone_latency AS (
    DELETE FROM roll_up_latency WHERE ctid = ANY (ARRAY(SELECT spot FROM old_latency)) RETURNING 1
)
SELECT (SELECT count(*) FROM gone)::int + (SELECT count(*) FROM gone_latency)::int
