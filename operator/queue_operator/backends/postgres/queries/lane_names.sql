-- Makes namespaces and types that are missing; one that is being removed stays.
-- Parameters: namespaces, types (text[]), each sorted and without repeats, so that two of these never
--   wait in a circle. Index: namespace_name_key, job_type_name_key. Locks: the rows.
WITH made_types AS (
    INSERT INTO job_type (name) SELECT unnest(%(types)s::text[])
    ON CONFLICT (name) DO NOTHING
)
INSERT INTO namespace (name) SELECT unnest(%(namespaces)s::text[])
ON CONFLICT (name) DO UPDATE SET retired_at = NULL WHERE namespace.retired_at IS NOT NULL
