-- From the next connection on every statement of this database is counted. Superusers only.
CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public;
DO $$
BEGIN
    EXECUTE format('ALTER DATABASE %I SET pg_stat_statements.track = top', current_database());
END
$$
