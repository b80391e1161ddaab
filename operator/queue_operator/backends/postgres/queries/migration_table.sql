-- Where migrations are recorded. `needs` names a migration that a release must know to work on
-- the schema since then; NULL: older releases go on.
-- Parameters: none. Locks: nothing that anybody else uses.
-- Trap: IF NOT EXISTS asks for the right to create although the table exists; see
--   `migration_place`.
CREATE TABLE schema_migration (
    name       text PRIMARY KEY,
    checksum   text NOT NULL,
    needs      text,
    applied_at timestamptz NOT NULL DEFAULT now()
)
