-- (table, dead rows) of the product's tables, by the server's own statistics.
SELECT relname::text, n_dead_tup
FROM pg_stat_user_tables
WHERE schemaname = 'queue_operator' AND n_dead_tup > 0
ORDER BY n_dead_tup DESC
