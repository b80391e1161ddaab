-- Seconds since the oldest eligible job became eligible, by namespace and type.
-- Parameters: lanes (int[]): where jobs wait; marks (timestamptz[]) and mark_numbers (bigint[]): a
--   place in each lane before which nothing waits.
-- Looks at the head of each lane: one step into ready_claim, however long the lane. The head is the
-- oldest by the claim's order. Then lane's, namespace's and job_type's primary keys.
-- Traps: while a transaction keeps the horizon back, the dead entries of those that were taken since
--   the mark lie before a head; so this is for gauges, not for the claim. OFFSET 0 keeps the planner
--   from starting at the names and going through all lanes for each.
WITH heads AS MATERIALIZED (
    SELECT asked.lane_id, head.eligible_at
    FROM unnest(%(lanes)s::int[], %(marks)s::timestamptz[], %(mark_numbers)s::bigint[])
        AS asked(lane_id, mark, mark_no)
    CROSS JOIN LATERAL (
        SELECT eligible_at
        FROM ready
        WHERE ready.lane_id = asked.lane_id AND due
          AND (order_time, job_no) >= (asked.mark, asked.mark_no)
        ORDER BY order_time, job_no
        LIMIT 1
    ) AS head
    WHERE head.eligible_at <= now()
), ages AS MATERIALIZED (
    SELECT namespace_id, type_id, max(now() - eligible_at) AS age
    FROM heads
    CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = heads.lane_id OFFSET 0) AS lane
    GROUP BY namespace_id, type_id
)
SELECT (SELECT name FROM namespace WHERE namespace.id = ages.namespace_id),
       (SELECT name FROM job_type WHERE job_type.id = ages.type_id),
       extract(epoch FROM age)::double precision
FROM ages
