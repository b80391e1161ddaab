-- Jobs by namespace, type and state. No parameters.
-- Index: those of {{tail}} and {{kinds}}; namespace's and job_type's primary keys.
-- Traps: as in {{kinds}}; OFFSET 0 keeps the planner from starting at the names.
WITH RECURSIVE {{tail}},
{{kinds}}
SELECT kind.namespace, kind.type, counts.state, counts.jobs
FROM counts
CROSS JOIN LATERAL (
    SELECT (SELECT name FROM namespace WHERE namespace.id = counts.namespace_id) AS namespace,
           (SELECT name FROM job_type WHERE job_type.id = counts.type_id) AS type
    OFFSET 0
) AS kind
WHERE kind.namespace IS NOT NULL AND kind.type IS NOT NULL
