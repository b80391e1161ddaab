-- The lanes that a search may find jobs in, each with how many it has by state.
-- Parameters: namespace, types, priorities, tags (text[]; an empty one does not filter).
-- Index: lane by namespace, then lane_count's primary key; the changes not yet folded are read
--   whole. Locks: none.
-- Trap: OFFSET 0 and the arrays keep the planner from starting at the counts of all lanes.
WITH wanted AS MATERIALIZED (
    SELECT lane.id, lane.priority
    FROM namespace
    JOIN lane ON lane.namespace_id = namespace.id
    WHERE namespace.name = %(namespace)s
      AND lane.tags @> %(tags)s::text[]
      AND (%(types)s::text[] = '{}' OR lane.type_id IN (
          SELECT id FROM job_type WHERE name = ANY (%(types)s::text[])
      ))
      AND (%(priorities)s::text[] = '{}' OR lane.priority = ANY (%(priorities)s::text[]))
)
SELECT wanted.id, wanted.priority, counted.state, sum(counted.jobs)::bigint
FROM wanted
JOIN (
    SELECT lane_id, state, jobs FROM lane_count
    UNION ALL
    SELECT lane_id, state, jobs FROM count_delta
) AS counted ON counted.lane_id = wanted.id
GROUP BY wanted.id, wanted.priority, counted.state
HAVING sum(counted.jobs) > 0
