-- The namespaces and types that the figures show by name; no type: the sum of the namespace's others.
-- No parameters. Index: figure_name_pkey, whole: it is bounded; namespace_pkey and job_type_pkey.
-- Locks: none.
SELECT (SELECT name FROM namespace WHERE namespace.id = figure_name.namespace_id),
       (SELECT name FROM job_type WHERE job_type.id = figure_name.type_id), type_id = 0
FROM figure_name
WHERE namespace_id > 0
