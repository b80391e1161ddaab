-- How many statements were run in this database, this one not yet.
SELECT coalesce(sum(calls), 0)::bigint
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
