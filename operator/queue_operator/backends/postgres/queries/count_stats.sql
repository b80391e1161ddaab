-- (state, jobs, retries) of the jobs of a namespace that carry all tags.
-- Parameters: namespace text, tags text[]; no tags means all jobs.
-- Tags are a property of the lane. Reads the counts and the changes not yet folded, both whole
-- and in one snapshot, adds up by lane and looks at each lane once by its primary key.
-- Trap: OFFSET 0 keeps the planner from starting at the lanes and reading all counts for each.
WITH counts AS MATERIALIZED (
    SELECT lane_id, state, sum(jobs) AS jobs, sum(retries) AS retries
    FROM (
        SELECT lane_id, state, jobs, retries FROM lane_count
        UNION ALL
        SELECT lane_id, state, jobs, retries FROM count_delta
    ) AS counted
    GROUP BY lane_id, state
)
SELECT counts.state, sum(counts.jobs)::bigint, sum(counts.retries)::bigint
FROM counts
CROSS JOIN LATERAL (
    SELECT
    FROM lane
    JOIN namespace ON namespace.id = lane.namespace_id
    WHERE lane.id = counts.lane_id
      AND namespace.name = %(namespace)s
      AND lane.tags @> %(tags)s::text[]
    OFFSET 0
) AS matching
GROUP BY counts.state
