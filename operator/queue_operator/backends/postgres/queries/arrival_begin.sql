-- Where jobs wait, for whatever, as one snapshot sees it: rows that begin as those of
-- `arrival_read.sql`, with a lane each. One row at least, whose rest is NULL where none waits; lanes in
-- which a job of late waited may be among them. No parameters.
-- Index: lane_waiting_pkey, whole: a row per lane; those of {{tail}}; the primary keys of lane, namespace
--   and job_type. Locks: none.
-- Trap: OFFSET 0 keeps the planner from starting at the names.
WITH {{tail}}, asked AS MATERIALIZED (
    SELECT lane_id FROM lane_waiting WHERE namespace_id > 0
    UNION
    SELECT lane_id FROM tail WHERE state IN ({{eligible}}) AND jobs > 0
)
SELECT now(), pg_current_snapshot()::text, {{origin}},
       ARRAY(SELECT ARRAY[namespace, type] FROM pause), waiting.*
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (
    SELECT lane.* FROM asked CROSS JOIN LATERAL (
        SELECT lane.id, namespace.name AS namespace, job_type.name AS type, lane.priority, lane.tags
        FROM lane
        JOIN namespace ON namespace.id = lane.namespace_id
        JOIN job_type ON job_type.id = lane.type_id
        WHERE lane.id = asked.lane_id OFFSET 0
    ) AS lane
) AS waiting ON true
