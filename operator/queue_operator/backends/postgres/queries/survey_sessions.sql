-- Of the clients of this database: how many may not be seen, how many are in each state, and the
-- age in seconds of the oldest transaction that keeps rows from being removed.
-- Parameters: none. Index: none; the server's own list of sessions. Locks: none.
-- Trap: without the rights of pg_read_all_stats the sessions of other roles have neither a state
--   nor a beginning; of those nobody knows how old they are.
SELECT
    count(*) FILTER (WHERE a.query = '<insufficient privilege>') AS hidden,
    count(*) FILTER (WHERE a.state = 'active') AS active,
    count(*) FILTER (WHERE a.state = 'idle') AS idle,
    count(*) FILTER (WHERE starts_with(a.state, 'idle in transaction')) AS idle_in_transaction,
    count(*) FILTER (
        WHERE a.state IS NULL
        OR NOT (a.state IN ('active', 'idle') OR starts_with(a.state, 'idle in transaction'))
    ) AS other,
    greatest(
        0,
        max(extract(epoch FROM clock_timestamp() - a.xact_start)) FILTER (
            WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
            AND a.pid <> pg_backend_pid()
        ),
        (
            SELECT max(extract(epoch FROM clock_timestamp() - p.prepared))
            FROM pg_prepared_xacts p WHERE p.database = current_database()
        )
    )::double precision AS oldest_s
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usesysid IS NOT NULL AND a.leader_pid IS NULL
