-- What a role lacks to run the queue, as GRANT writes it; the schema first; what does not
-- exist is not missed.
-- Parameters: role (text; NULL: the current one), tables, privileges (text[]), read_only (text[]:
--   tables of which SELECT is enough), sequences (text[]).
-- Index: pg_class by name. Locks: none.
WITH asking AS (
    SELECT coalesce(%(role)s, current_user)::name AS role,
           to_regnamespace('queue_operator')::oid AS place
)
SELECT 1, 'USAGE ON SCHEMA queue_operator' FROM asking
WHERE place IS NOT NULL AND NOT has_schema_privilege(role, place, 'USAGE')
UNION ALL
SELECT 2, privilege || ' ON ' || relname FROM asking
JOIN pg_class ON relnamespace = place AND relname = ANY (%(tables)s::text[])
CROSS JOIN unnest(%(privileges)s::text[]) AS p(privilege)
WHERE (privilege = 'SELECT' OR relname <> ALL (%(read_only)s::text[]))
  AND NOT has_table_privilege(role, pg_class.oid, privilege)
UNION ALL
SELECT 2, 'USAGE ON SEQUENCE ' || relname FROM asking
JOIN pg_class ON relnamespace = place AND relname = ANY (%(sequences)s::text[])
WHERE NOT has_sequence_privilege(role, pg_class.oid, 'USAGE')
ORDER BY 1, 2
