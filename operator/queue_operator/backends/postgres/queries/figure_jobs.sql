-- Jobs by the namespaces and types that are shown by name (NULL: as other) and by state, and names for
-- those that have jobs and none yet. Of each namespace in which jobs hold a slot a row without a state
-- says how many; and one without a namespace either, how many pairs are shown together.
-- Parameters: those of the part that names.
-- Index: kind_count_pkey, from one namespace, type and priority to the next below it, and of each
--   the newest version; those of {{tail}} and of the part that names; lane_pkey, namespace_pkey,
--   job_type_pkey.
-- Locks: none but of names.
-- Traps: as in `depth_jobs.sql`.
WITH RECURSIVE {{tail}},
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
    HAVING sum(jobs) <> 0
), used AS MATERIALIZED (
    SELECT namespace_id, type_id, sum(jobs) AS n FROM counts GROUP BY namespace_id, type_id
), {{named}}, shown AS MATERIALIZED (
    SELECT counts.*,
           ((namespace_id, type_id) IN (SELECT namespace_id, type_id FROM named)) IS TRUE AS by_pair,
           (namespace_id IN (SELECT namespace_id FROM named WHERE type_id = 0)) IS TRUE AS by_space
    FROM counts
), summed AS MATERIALIZED (
    SELECT CASE WHEN by_pair OR by_space THEN namespace_id ELSE 0 END AS namespace_id,
           CASE WHEN by_pair THEN type_id ELSE 0 END AS type_id, state, sum(jobs)::bigint AS jobs
    FROM shown GROUP BY 1, 2, 3
)
SELECT (SELECT name FROM namespace WHERE namespace.id = summed.namespace_id),
       (SELECT name FROM job_type WHERE job_type.id = summed.type_id), state, jobs
FROM summed
UNION ALL
SELECT (SELECT name FROM namespace WHERE namespace.id = holding.namespace_id), NULL, NULL, jobs
FROM (
    SELECT namespace_id, sum(jobs)::bigint AS jobs FROM counts
    WHERE state IN ({{slot_holding}}) GROUP BY namespace_id
) AS holding
WHERE EXISTS (SELECT FROM namespace WHERE namespace.id = holding.namespace_id)
UNION ALL
SELECT NULL, NULL, NULL, count(*) FROM (
    SELECT FROM shown WHERE NOT by_pair GROUP BY namespace_id, type_id
) AS unnamed
