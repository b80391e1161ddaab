-- What happened in a namespace from one time on, by steps of equal length, from the roll-ups and from
-- the part of the log that is not in them. Rows of two sorts: per step counts, and, where waits is
-- not NULL, by what was measured (waits: in line, else running) and bucket how many values.
-- Parameters: since (timestamptz): where the first step begins; step_s; those of {{cells}} and
--   {{stored}}.
-- Index: those of {{cells}} and {{stored}}; lane_pkey. Locks: none.
-- Trap: a span that is longer than a step would be told in the one it begins in, so there is none.
WITH {{cells}},
{{stored}}, merged AS (
    SELECT date_bin(make_interval(secs => %(step_s)s::int), begins_at, %(since)s) AS begins_at,
           NULL::bool AS waits, NULL::int AS bucket, NULL::bigint AS n, submitted, completed, failed,
           dead_letter, cancelled, attempts_failed, NULL::bigint AS max_us
    FROM stored
    UNION ALL
    SELECT date_bin(make_interval(secs => %(step_s)s::int), begins_at, %(since)s),
           waits, unnest(buckets), unnest(counts), 0, 0, 0, 0, 0, 0, max_us
    FROM took
    UNION ALL
    SELECT date_bin(make_interval(secs => %(step_s)s::int), minute, %(since)s),
           CASE WHEN bucket IS NOT NULL THEN kind = 2 END, bucket, n,
           n * (kind = 1)::int, n * (kind = 3)::int, n * (kind = 7)::int, n * (kind = 4)::int,
           n * (kind = 5)::int, n * (kind IN (4, 6, 7))::int, max_us
    FROM cells
    CROSS JOIN LATERAL (
        SELECT FROM lane
        WHERE lane.id = cells.lane_id AND namespace_id = %(namespace_id)s OFFSET 0
    ) AS lane
    WHERE minute >= %(since)s
)
SELECT begins_at, waits, bucket, sum(n)::bigint, sum(submitted)::bigint, sum(completed)::bigint,
       sum(failed)::bigint, sum(dead_letter)::bigint, sum(cancelled)::bigint,
       sum(attempts_failed)::bigint, max(max_us)
FROM merged
GROUP BY GROUPING SETS ((begins_at), (begins_at, waits, bucket))
HAVING GROUPING(waits) = 1 OR bucket IS NOT NULL
