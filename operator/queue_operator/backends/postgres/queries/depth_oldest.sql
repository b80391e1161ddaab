-- Seconds since the oldest eligible job became eligible, by namespace and type. No parameters.
-- Looks at the head of each lane that has waiting jobs by the counts: one step into ready_claim
-- per lane, however long the lane. The head is the oldest by the claim's order.
-- Traps: while a transaction keeps the horizon back, a head lies behind the dead entries of
-- those that were taken before it; so this is for gauges, not for the claim. OFFSET 0 keeps
-- the planner from starting at the names and going through all lanes for each.
WITH waiting AS MATERIALIZED (
    SELECT lane_id
    FROM (
        SELECT lane_id, jobs FROM lane_count WHERE state IN ({{eligible}})
        UNION ALL
        SELECT lane_id, jobs FROM count_delta WHERE state IN ({{eligible}})
    ) AS counted
    GROUP BY lane_id
    HAVING sum(jobs) > 0
)
SELECT lane.namespace, lane.type,
       extract(epoch FROM max(now() - head.eligible_at))::double precision
FROM waiting
CROSS JOIN LATERAL (
    SELECT eligible_at
    FROM ready
    WHERE ready.lane_id = waiting.lane_id AND due
    ORDER BY order_time, job_no
    LIMIT 1
) AS head
CROSS JOIN LATERAL (
    SELECT namespace.name AS namespace, job_type.name AS type
    FROM lane
    JOIN namespace ON namespace.id = lane.namespace_id
    JOIN job_type ON job_type.id = lane.type_id
    WHERE lane.id = waiting.lane_id
    OFFSET 0
) AS lane
WHERE head.eligible_at <= now()
GROUP BY lane.namespace, lane.type
