-- Jobs by namespace, type and state. No parameters.
-- Reads the counts and the changes not yet folded, both whole: a row per lane and state, and
-- as many changes as arrived since the last fold. One snapshot, so a change that is being
-- folded counts once. Adds up before it joins. Joins lane's, namespace's and job_type's keys.
WITH counts AS (
    SELECT lane_id, state, sum(jobs) AS jobs
    FROM (
        SELECT lane_id, state, jobs FROM lane_count
        UNION ALL
        SELECT lane_id, state, jobs FROM count_delta
    ) AS counted
    GROUP BY lane_id, state
)
SELECT namespace.name, job_type.name, counts.state, sum(counts.jobs)::bigint
FROM counts
JOIN lane ON lane.id = counts.lane_id
JOIN namespace ON namespace.id = lane.namespace_id
JOIN job_type ON job_type.id = lane.type_id
GROUP BY namespace.name, job_type.name, counts.state
