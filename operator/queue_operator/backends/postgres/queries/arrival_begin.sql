-- Where jobs wait, for whatever, as one snapshot sees it: rows of which the first begins as those of
-- `arrival_read.sql`, followed by a lane as `lane_find.sql` gives it. One row at least, whose lane is NULL
-- where none waits; lanes in which a job of late waited may be among them. No parameters.
-- Index: lane_waiting_pkey, whole: a row per lane; those of {{tail}} and {{told}}. Locks: none.
WITH {{tail}}, asked AS MATERIALIZED (
    SELECT lane_id FROM lane_waiting WHERE namespace_id > 0
    UNION
    SELECT lane_id FROM tail WHERE state IN ({{eligible}}) AND jobs > 0
), {{told}}
SELECT now(), pg_current_snapshot()::text, {{history}},
       CASE WHEN place > 1 THEN NULL ELSE ARRAY(SELECT ARRAY[namespace, type] FROM pause) END,
       CASE WHEN place > 1 THEN NULL ELSE (SELECT spaces FROM names) END,
       CASE WHEN place > 1 THEN NULL ELSE (SELECT kinds FROM names) END,
       id, told.namespace_id, type_id, priority, tags
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN told ON true
