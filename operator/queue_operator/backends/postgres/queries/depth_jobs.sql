-- Jobs by namespace, type and state. No parameters.
-- Reads the counts and the changes not yet folded, both whole: a row per lane and state, and
-- as many changes as arrived since the last fold. One snapshot, so a change that is being
-- folded counts once. Then lane's, namespace's and job_type's primary keys.
-- Trap: OFFSET 0 keeps the planner from starting at the names and reading all counts for each.
WITH counts AS MATERIALIZED (
    SELECT lane_id, state, sum(jobs) AS jobs
    FROM (
        SELECT lane_id, state, jobs FROM lane_count
        UNION ALL
        SELECT lane_id, state, jobs FROM count_delta
    ) AS counted
    GROUP BY lane_id, state
)
SELECT lane.namespace, lane.type, counts.state, sum(counts.jobs)::bigint
FROM counts
CROSS JOIN LATERAL (
    SELECT namespace.name AS namespace, job_type.name AS type
    FROM lane
    JOIN namespace ON namespace.id = lane.namespace_id
    JOIN job_type ON job_type.id = lane.type_id
    WHERE lane.id = counts.lane_id
    OFFSET 0
) AS lane
GROUP BY lane.namespace, lane.type, counts.state
