-- Makes one lane if it is missing and gives its id and its namespace's.
-- Parameters: namespace, type, priority, tags (sorted). Runs in a transaction of its own,
-- before the submission: a lane that nobody uses does no harm.
WITH made_namespace AS (
    INSERT INTO namespace (name) VALUES (%(namespace)s) ON CONFLICT DO NOTHING RETURNING id
), made_type AS (
    INSERT INTO job_type (name) VALUES (%(type)s) ON CONFLICT DO NOTHING RETURNING id
), known AS (
    SELECT
        coalesce((SELECT id FROM made_namespace),
                 (SELECT id FROM namespace WHERE name = %(namespace)s)) AS namespace_id,
        coalesce((SELECT id FROM made_type),
                 (SELECT id FROM job_type WHERE name = %(type)s)) AS type_id
)
INSERT INTO lane (namespace_id, type_id, priority, tags)
SELECT namespace_id, type_id, %(priority)s, %(tags)s::text[] FROM known
WHERE namespace_id IS NOT NULL AND type_id IS NOT NULL
ON CONFLICT DO NOTHING
