-- How many jobs of some namespaces wait, whatever for, and how many hold a slot.
-- Parameters: namespaces (text[]). Index: namespace_name_key; of each the newest version of its
--   count, by namespace_count_pkey; those of {{tail}}, and lane_pkey for the lanes of these changes,
--   whosoever they are. Locks: none.
-- Trap: a join of what is asked for with the changes may be planned as a loop over both; the array
--   leaves no choice.
WITH {{tail}},
asked AS MATERIALIZED (
    SELECT space.id
    FROM unnest(%(namespaces)s::text[]) AS given(name)
    CROSS JOIN LATERAL (SELECT id FROM namespace WHERE name = given.name OFFSET 0) AS space
), counted AS MATERIALIZED (
    SELECT asked.id, told.state, told.jobs
    FROM asked
    CROSS JOIN LATERAL (
        SELECT states, jobs FROM namespace_count
        WHERE namespace_id = asked.id ORDER BY version DESC LIMIT 1
    ) AS kept
    CROSS JOIN LATERAL unnest(kept.states, kept.jobs) AS told(state, jobs)
    UNION ALL
    SELECT space_id, state, jobs
    FROM (
        SELECT state, jobs,
               (SELECT namespace_id FROM lane WHERE lane.id = tail.lane_id) AS space_id
        FROM tail
        OFFSET 0
    ) AS placed
    WHERE space_id = ANY (ARRAY(SELECT id FROM asked))
)
SELECT (SELECT name FROM namespace WHERE namespace.id = by_space.id), waiting, running
FROM (
    SELECT id, coalesce(sum(jobs) FILTER (WHERE state IN ({{eligible}})), 0)::bigint AS waiting,
           coalesce(sum(jobs) FILTER (WHERE state IN ({{slot_holding}})), 0)::bigint AS running
    FROM counted GROUP BY id
) AS by_space
