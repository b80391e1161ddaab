-- Jobs by the namespaces and types that are shown by name (NULL: as other) and by state, and names for
-- those that have jobs and none yet. Of each namespace in which jobs hold a slot a row without a state
-- says how many; and one without a namespace either, how many pairs are shown together.
-- Parameters: those of the part that names.
-- Index: those of {{tail}}, of {{kinds}} and of the part that names; namespace_pkey, job_type_pkey.
-- Locks: none but of names.
-- Traps: those of {{kinds}}.
WITH RECURSIVE {{tail}},
{{kinds}}, present AS MATERIALIZED (
    SELECT * FROM counts WHERE jobs <> 0
), used AS MATERIALIZED (
    SELECT namespace_id, type_id, sum(jobs) AS n FROM present GROUP BY namespace_id, type_id
), {{named}}, shown AS MATERIALIZED (
    SELECT present.*,
           ((namespace_id, type_id) IN (SELECT namespace_id, type_id FROM named)) IS TRUE AS by_pair,
           (namespace_id IN (SELECT namespace_id FROM named WHERE type_id = 0)) IS TRUE AS by_space
    FROM present
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
    SELECT namespace_id, sum(jobs)::bigint AS jobs FROM present
    WHERE state IN ({{slot_holding}}) GROUP BY namespace_id
) AS holding
WHERE EXISTS (SELECT FROM namespace WHERE namespace.id = holding.namespace_id)
UNION ALL
SELECT NULL, NULL, NULL, count(*) FROM (
    SELECT FROM shown WHERE NOT by_pair GROUP BY namespace_id, type_id
) AS unnamed
