-- What happened in a namespace within a window, from the roll-ups and from the part of the log
-- that is not in them. Rows of two sorts: by type and priority counts, and, where these are NULL,
-- by what was measured (waits: in line, else running) and bucket how many values.
-- Parameters: since (timestamptz): where it begins; those of {{cells}} and {{stored}}.
-- Index: job_type_pkey; those of {{cells}} and {{stored}}. Locks: none.
WITH {{cells}},
{{stored}}, merged AS (
    SELECT type_id, priority, NULL::bool AS waits, NULL::int AS bucket, NULL::bigint AS n,
           submitted, completed, failed, dead_letter, cancelled, attempts_failed, NULL::bigint AS max_us
    FROM stored
    UNION ALL
    SELECT NULL, NULL, waits, unnest(buckets), unnest(counts), 0, 0, 0, 0, 0, 0, max_us
    FROM took
    UNION ALL
    SELECT lane.type_id, lane.priority, CASE WHEN bucket IS NOT NULL THEN kind = 2 END, bucket, n,
           n * (kind = 1)::int, n * (kind = 3)::int, n * (kind = 7)::int, n * (kind = 4)::int,
           n * (kind = 5)::int, n * (kind IN (4, 6, 7))::int, max_us
    FROM cells
    CROSS JOIN LATERAL (
        SELECT * FROM lane
        WHERE lane.id = cells.lane_id AND namespace_id = %(namespace_id)s OFFSET 0
    ) AS lane
    WHERE minute >= %(since)s
), summed AS (
    SELECT type_id, priority, waits, bucket, sum(n)::bigint AS n, sum(submitted)::bigint AS submitted,
           sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
           sum(dead_letter)::bigint AS dead_letter, sum(cancelled)::bigint AS cancelled,
           sum(attempts_failed)::bigint AS attempts_failed, max(max_us) AS max_us
    FROM merged
    GROUP BY GROUPING SETS ((type_id, priority), (waits, bucket))
    HAVING CASE WHEN GROUPING(type_id) = 0 THEN type_id IS NOT NULL ELSE bucket IS NOT NULL END
)
SELECT (SELECT name FROM job_type WHERE job_type.id = summed.type_id), priority, waits, bucket, n,
       submitted, completed, failed, dead_letter, cancelled, attempts_failed, max_us
FROM summed
