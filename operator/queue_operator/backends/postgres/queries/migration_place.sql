-- Whether the schema and the list of migrations exist, whoever may see them.
-- Parameters: none. Locks: none.
-- Trap: looking the table up by its name would need rights on the schema.
SELECT to_regnamespace('queue_operator') IS NOT NULL,
       EXISTS (SELECT FROM pg_class WHERE relname = 'schema_migration'
               AND relnamespace = to_regnamespace('queue_operator'))
