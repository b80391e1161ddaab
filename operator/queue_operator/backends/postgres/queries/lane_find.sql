-- What some lanes stand for: (spaces, kinds, lane, namespace, type, priority, tags) of each. Namespaces
-- and types are numbers; `spaces` and `kinds`, in the first row alone, say their names.
-- Parameters: lanes (int[]). Index: those of {{told}}. Locks: none.
WITH asked AS (SELECT unnest(%(lanes)s::int[]) AS lane_id), {{told}}
SELECT CASE WHEN place = 1 THEN (SELECT spaces FROM names) END,
       CASE WHEN place = 1 THEN (SELECT kinds FROM names) END,
       id, namespace_id, type_id, priority, tags
FROM told
