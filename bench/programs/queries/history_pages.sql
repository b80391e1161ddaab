-- How many pages the statements of this database have read so far, this one's not yet.
SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
