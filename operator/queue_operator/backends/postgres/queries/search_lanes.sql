-- The lanes that a search may find jobs in: by state an array of them, and one of how many jobs
-- each has. Of what waits to be claimed, also by priority; that is NULL else.
-- Parameters: namespace, types, priorities, tags (text[]; an empty one does not filter).
-- Index: lane_namespace_id_type_id_priority_tags_key; of each lane the newest version of its count,
--   by lane_count_pkey; those of {{tail}}, and of these lanes lane_pkey. Locks: none.
-- Traps: a join of the lanes with the changes may be planned as a loop over both; the set that IS
--   TRUE cannot become one.
WITH {{tail}},
wanted AS MATERIALIZED (
    SELECT id, priority
    FROM lane
    WHERE namespace_id = (SELECT id FROM namespace WHERE name = %(namespace)s)
      AND tags @> %(tags)s::text[]
      AND (%(types)s::text[] = '{}'
           OR type_id = ANY (ARRAY(SELECT id FROM job_type WHERE name = ANY (%(types)s::text[]))))
      AND (%(priorities)s::text[] = '{}' OR priority = ANY (%(priorities)s::text[]))
), counted AS MATERIALIZED (
    SELECT lane_id, priority, state, sum(jobs)::bigint AS jobs
    FROM (
        SELECT wanted.id AS lane_id, wanted.priority, told.state, told.jobs
        FROM wanted
        CROSS JOIN LATERAL (
            SELECT states, jobs FROM lane_count
            WHERE lane_id = wanted.id ORDER BY version DESC LIMIT 1
        ) AS kept
        CROSS JOIN LATERAL unnest(kept.states, kept.jobs) AS told(state, jobs)
        UNION ALL
        SELECT lane_id, (SELECT priority FROM lane WHERE lane.id = tail.lane_id), state, jobs
        FROM tail
        WHERE (lane_id IN (SELECT id FROM wanted)) IS TRUE
    ) AS told
    GROUP BY lane_id, priority, state
    HAVING sum(jobs) > 0
)
SELECT state, told_priority, array_agg(lane_id), array_agg(jobs)
FROM (
    SELECT state, lane_id, jobs,
           CASE WHEN state IN ({{INITIAL_PENDING}}) THEN priority END AS told_priority
    FROM counted
) AS told
GROUP BY state, told_priority
