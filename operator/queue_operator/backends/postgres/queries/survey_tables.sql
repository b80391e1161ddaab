-- How large each of our tables is on disk, and how many dead rows it is thought to have.
-- Parameters: schema (text), tables (text[]): those asked for.
-- Index: pg_class's and pg_namespace's on the name. Locks: ACCESS SHARE on each table for a moment,
--   as any read of it would.
-- Trap: the tables themselves are not read: the size is that of the files, and the dead rows are
--   the server's estimate, 0 after its statistics were reset.
SELECT c.relname, pg_total_relation_size(c.oid), pg_stat_get_dead_tuples(c.oid)
FROM pg_class c
WHERE c.relname = ANY (%(tables)s::text[])
  AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s)
  AND c.relkind = 'r'
