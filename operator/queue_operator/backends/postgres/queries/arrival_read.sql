-- What arrived since an earlier snapshot: at least one row, whose rest is NULL where
-- nothing arrived. Each begins with the time, the snapshot of this statement, of which server and
-- database it is, and what is paused: pairs of a namespace and a type.
-- Parameters: those of {{fresh}}. Index: those of {{fresh}}; the pauses are read whole.
-- Trap: numbers of transactions say something only within one life of one server's history, which
--   {{history}} names.
SELECT now(), pg_current_snapshot()::text, {{history}},
       ARRAY(SELECT ARRAY[namespace, type] FROM pause), fresh.*
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN ({{fresh}}) AS fresh ON true
