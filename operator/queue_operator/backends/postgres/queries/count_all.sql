-- (state, jobs, retries) of all jobs of a namespace; the retries may be told of any of the states.
-- Parameters: namespace text.
-- Index: namespace_name_key, namespace_count_pkey from its end; those of {{tail}}, and lane_pkey for
--   the lanes of these changes, whosoever they are. Locks: none.
WITH {{tail}},
space AS MATERIALIZED (SELECT id FROM namespace WHERE name = %(namespace)s)
SELECT state, sum(jobs)::bigint, sum(retries)::bigint
FROM (
    SELECT told.state, told.jobs, CASE WHEN told.place = 1 THEN kept.retries ELSE 0 END AS retries
    FROM (
        SELECT states, jobs, retries FROM namespace_count
        WHERE namespace_id = (SELECT id FROM space) ORDER BY version DESC LIMIT 1
    ) AS kept
    CROSS JOIN LATERAL unnest(kept.states, kept.jobs) WITH ORDINALITY AS told(state, jobs, place)
    UNION ALL
    SELECT state, jobs, retries FROM tail
    WHERE (SELECT namespace_id FROM lane WHERE lane.id = tail.lane_id) = (SELECT id FROM space)
) AS counted
GROUP BY state
