-- Part of others: what the roll-ups have of a namespace, in the spans that make up a time.
-- Parameters: namespace_id; spans (int[]), begins and ends (timestamptz[], exclusive): the ranges.
-- Index: roll_up_pkey and roll_up_latency_pkey, one range for each of them. Locks: none.
stored AS MATERIALIZED (
    SELECT found.*
    FROM unnest(%(spans)s::int[], %(begins)s::timestamptz[], %(ends)s::timestamptz[])
        AS span(span_s, begins_at, ends_at)
    CROSS JOIN LATERAL (
        SELECT * FROM roll_up
        WHERE namespace_id = %(namespace_id)s AND roll_up.span_s = span.span_s
          AND roll_up.begins_at >= span.begins_at AND roll_up.begins_at < span.ends_at
        OFFSET 0
    ) AS found
), took AS MATERIALIZED (
    SELECT found.*
    FROM unnest(%(spans)s::int[], %(begins)s::timestamptz[], %(ends)s::timestamptz[])
        AS span(span_s, begins_at, ends_at)
    CROSS JOIN LATERAL (
        SELECT * FROM roll_up_latency AS kept
        WHERE namespace_id = %(namespace_id)s AND kept.span_s = span.span_s
          AND kept.begins_at >= span.begins_at AND kept.begins_at < span.ends_at
        OFFSET 0
    ) AS found
)
