-- Where the last sweep ended. Gives its number, now, since when sweeps go on after a gap, and
-- before when a lease must have ended to be lost. Within one TTL after a gap in which nobody swept
-- none is, NULL, for then the workers could not renew either. The sweep that finds such a gap takes
-- those that had ended at the sweep before it, and so have had longer. Then the marks, by kind, and
-- from when on to look, which may be earlier; the snapshot that saw all before the marks, or NULL;
-- and before when a deadline and a cancel are overdue.
-- Parameters: ttl_s, cancel_timeout_s. Index: sweep_pkey, its end. Locks: none; the caller holds
--   the sweepers' lock, under which alone a row is appended.
-- Traps: a snapshot of another database, of which this is a restored copy, says nothing, so all
--   is looked at. What a clock noted that was ahead is now. After a long time too much came since
--   the snapshot, so what may have been committed late is looked for from ten minutes before each
--   mark on.
SELECT number, now() AS now, resumed_at, CASE WHEN is_gap THEN swept_at
            WHEN coalesce(now() - resumed_at >= ttl, true) THEN now() END AS ended_before,
       kinds, marks,
       CASE WHEN is_foreign THEN array_fill(NULL::timestamptz, ARRAY[cardinality(marks)])
            WHEN is_old THEN ARRAY(
                SELECT mark - interval '10 minutes'
                FROM unnest(marks) WITH ORDINALITY AS m(mark, place) ORDER BY place)
            ELSE marks END AS starts,
       CASE WHEN NOT (is_foreign OR is_old) THEN seen::text END AS seen,
       greatest(now() - ttl, '0001-01-02') AS deadline_before,
       greatest(now() - make_interval(secs => %(cancel_timeout_s)s), '0001-01-02') AS cancel_before
FROM (
    SELECT number, kinds, marks, seen, ttl, swept_at, now() - swept_at > ttl AS is_gap,
           CASE WHEN now() - swept_at > ttl OR resumed_at > now() THEN now()
                ELSE resumed_at END AS resumed_at,
           coalesce(pg_snapshot_xmax(seen) > pg_snapshot_xmax(pg_current_snapshot()), true)
               AS is_foreign,
           now() - seen_at > interval '1 minute' AS is_old
    FROM sweep CROSS JOIN make_interval(secs => %(ttl_s)s) AS ttl
    ORDER BY number DESC LIMIT 1
) AS last
