-- (state, jobs, retries) of the jobs of a namespace that carry all tags; the retries may be told of
-- any of the states.
-- Parameters: namespace text, tags text[].
-- Tags are a property of the lane. Index: lane_namespace_id_type_id_priority_tags_key, then of each
--   lane the newest version of its count, by lane_count_pkey; those of {{tail}}. Locks: none.
-- Traps: a join of the lanes with the changes may be planned as a loop over both; the set that IS
--   TRUE keeps from becoming one.
WITH {{tail}},
wanted AS MATERIALIZED (
    SELECT id
    FROM lane
    WHERE namespace_id = (SELECT id FROM namespace WHERE name = %(namespace)s)
      AND tags @> %(tags)s::text[]
)
SELECT state, sum(jobs)::bigint, sum(retries)::bigint
FROM (
    SELECT told.state, told.jobs, CASE WHEN told.place = 1 THEN kept.retries ELSE 0 END AS retries
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT states, jobs, retries FROM lane_count
        WHERE lane_id = wanted.id ORDER BY version DESC LIMIT 1
    ) AS kept
    CROSS JOIN LATERAL unnest(kept.states, kept.jobs) WITH ORDINALITY AS told(state, jobs, place)
    UNION ALL
    SELECT state, jobs, retries FROM tail
    WHERE (lane_id IN (SELECT id FROM wanted)) IS TRUE
) AS counted
GROUP BY state
