-- Gives names back that nobody used for long, or that are gone. Parameters: unused_s.
-- Index: figure_name_pkey, whole: it is bounded; namespace_pkey and job_type_pkey.
-- Locks: the rows that go.
DELETE FROM figure_name
WHERE namespace_id > 0
  AND (used_at < now() - make_interval(secs => %(unused_s)s)
       OR NOT EXISTS (SELECT FROM namespace WHERE namespace.id = figure_name.namespace_id OFFSET 0)
       OR type_id > 0
          AND NOT EXISTS (SELECT FROM job_type WHERE job_type.id = figure_name.type_id OFFSET 0))
