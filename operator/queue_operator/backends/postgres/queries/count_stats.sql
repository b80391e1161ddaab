-- (state, jobs, retries) of the jobs of a namespace that carry all tags.
-- Parameters: namespace text, tags text[]; no tags means all jobs.
-- Tags are a property of the lane. Index: lane_namespace_id_type_id_priority_tags_key, then
--   lane_count_pkey; the changes not yet folded are read whole. One snapshot, so a change that is
--   being folded counts once.
-- Traps: a join of the lanes with the counts may be planned as a loop over both; the array, and
--   the set that IS TRUE keeps from becoming a join, leave no choice.
WITH wanted AS MATERIALIZED (
    SELECT id
    FROM lane
    WHERE namespace_id = (SELECT id FROM namespace WHERE name = %(namespace)s)
      AND tags @> %(tags)s::text[]
)
SELECT state, sum(jobs)::bigint, sum(retries)::bigint
FROM (
    SELECT state, jobs, retries FROM lane_count
    WHERE lane_id = ANY (ARRAY(SELECT id FROM wanted))
    UNION ALL
    SELECT state, jobs, retries FROM count_delta
    WHERE (lane_id IN (SELECT id FROM wanted)) IS TRUE
) AS counted
GROUP BY state
