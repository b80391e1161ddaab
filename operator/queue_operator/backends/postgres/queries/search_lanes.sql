-- The lanes that a search may find jobs in, each with how many it has by state: two arrays.
-- Parameters: namespace, types, priorities, tags (text[]; an empty one does not filter).
-- Index: lane_namespace_id_type_id_priority_tags_key, lane_count_pkey, then the primary keys of
--   lane and job_type. The changes not yet folded are read whole. Locks: none.
-- Traps: a join of the lanes with the counts may be planned as a loop over both; the array, the
--   set that IS TRUE keeps from becoming a join, and OFFSET 0 leave no choice.
WITH wanted AS MATERIALIZED (
    SELECT id
    FROM lane
    WHERE namespace_id = (SELECT id FROM namespace WHERE name = %(namespace)s)
      AND tags @> %(tags)s::text[]
      AND (%(types)s::text[] = '{}'
           OR type_id = ANY (ARRAY(SELECT id FROM job_type WHERE name = ANY (%(types)s::text[]))))
      AND (%(priorities)s::text[] = '{}' OR priority = ANY (%(priorities)s::text[]))
), counted AS MATERIALIZED (
    SELECT lane_id, state, sum(jobs)::bigint AS jobs
    FROM (
        SELECT lane_id, state, jobs FROM lane_count
        WHERE lane_id = ANY (ARRAY(SELECT id FROM wanted))
        UNION ALL
        SELECT lane_id, state, jobs FROM count_delta
        WHERE (lane_id IN (SELECT id FROM wanted)) IS TRUE
    ) AS told
    GROUP BY lane_id, state
    HAVING sum(jobs) > 0
)
SELECT by_lane.lane_id, named.type, named.priority, by_lane.states, by_lane.jobs
FROM (
    SELECT lane_id, array_agg(state) AS states, array_agg(jobs) AS jobs
    FROM counted GROUP BY lane_id
) AS by_lane
CROSS JOIN LATERAL (
    SELECT job_type.name AS type, lane.priority
    FROM lane
    JOIN job_type ON job_type.id = lane.type_id
    WHERE lane.id = by_lane.lane_id
    OFFSET 0
) AS named
