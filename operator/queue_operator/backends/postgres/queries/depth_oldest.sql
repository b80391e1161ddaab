-- Seconds since the oldest eligible job became eligible, by namespace and type. No parameters.
-- Looks at the head of each lane that has waiting jobs by the counts: one step into ready_claim
-- per lane, however long the lane. The head is the oldest by the claim's order.
-- Trap: while a transaction keeps the horizon back, a head lies behind the dead entries of
-- those that were taken before it; so this is for gauges, not for the claim.
WITH waiting AS (
    SELECT lane_id
    FROM (
        SELECT lane_id, jobs FROM lane_count WHERE state IN ({{eligible}})
        UNION ALL
        SELECT lane_id, jobs FROM count_delta WHERE state IN ({{eligible}})
    ) AS counted
    GROUP BY lane_id
    HAVING sum(jobs) > 0
)
SELECT namespace.name, job_type.name,
       extract(epoch FROM max(now() - head.eligible_at))::double precision
FROM waiting
JOIN lane ON lane.id = waiting.lane_id
JOIN namespace ON namespace.id = lane.namespace_id
JOIN job_type ON job_type.id = lane.type_id
CROSS JOIN LATERAL (
    SELECT eligible_at
    FROM ready
    WHERE ready.lane_id = lane.id AND due
    ORDER BY order_time, job_no
    LIMIT 1
) AS head
WHERE head.eligible_at <= now()
GROUP BY namespace.name, job_type.name
