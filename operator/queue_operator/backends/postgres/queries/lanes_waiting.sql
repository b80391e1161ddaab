-- The lanes in which jobs wait, whatever for, as one snapshot sees them; which one that is, and of
-- which history. One row at least. No parameters.
-- Index: lane_count_pkey; the changes not yet folded are read whole; then the primary keys of lane,
--   namespace and job_type. Locks: none.
-- Trap: OFFSET 0 keeps the planner from starting at the names.
WITH counted AS MATERIALIZED (
    SELECT lane_id FROM (
        SELECT lane_id, jobs FROM lane_count WHERE state IN ({{eligible}})
        UNION ALL
        SELECT lane_id, jobs FROM count_delta WHERE state IN ({{eligible}})
    ) AS told
    GROUP BY lane_id HAVING sum(jobs) > 0
)
SELECT now(), pg_current_snapshot()::text, {{origin}},
       ARRAY(SELECT ARRAY[namespace, type] FROM pause), waiting.*
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (
    SELECT lane.id, lane.namespace, lane.type, lane.priority, lane.tags
    FROM counted CROSS JOIN LATERAL (
        SELECT lane.id, namespace.name AS namespace, job_type.name AS type, lane.priority, lane.tags
        FROM lane
        JOIN namespace ON namespace.id = lane.namespace_id
        JOIN job_type ON job_type.id = lane.type_id
        WHERE lane.id = counted.lane_id OFFSET 0
    ) AS lane
) AS waiting ON true
