-- Part of others, after that of the tail and RECURSIVE: jobs by namespace, type and state.
-- No parameters. Index: kind_count_pkey, from one namespace, type and priority to the next below it, and
--   of each the newest version; lane_pkey. Locks: none.
-- Traps: a kind whose lanes are gone may be counted, with nothing, until its count is forgotten, and
--   may have no name. The first step begins above all there are. OFFSET 0 keeps the planner from
--   starting at the lanes and reading all counts for each.
kinds AS (
    SELECT 2147483647 AS namespace_id, 2147483647 AS type_id, '' AS priority,
           NULL::text[] AS states, NULL::bigint[] AS jobs
    UNION ALL
    SELECT below.*
    FROM kinds
    CROSS JOIN LATERAL (
        SELECT namespace_id, type_id, priority, states, jobs
        FROM kind_count
        WHERE (kind_count.namespace_id, kind_count.type_id, kind_count.priority)
            < (kinds.namespace_id, kinds.type_id, kinds.priority)
        ORDER BY namespace_id DESC, type_id DESC, priority DESC, version DESC LIMIT 1
    ) AS below
), counts AS MATERIALIZED (
    SELECT namespace_id, type_id, state, sum(jobs)::bigint AS jobs
    FROM (
        SELECT namespace_id, type_id, told.state, told.jobs
        FROM kinds CROSS JOIN LATERAL unnest(states, kinds.jobs) AS told(state, jobs)
        UNION ALL
        SELECT lane.namespace_id, lane.type_id, tail.state, tail.jobs
        FROM tail
        CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = tail.lane_id OFFSET 0) AS lane
    ) AS counted
    GROUP BY namespace_id, type_id, state
)
