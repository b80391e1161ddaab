-- Rows of the event log in the order of their number. Parameters: after, max_rows.
-- Index: job_event_pkey. Locks: none.
-- Trap: numbers are given out before the commit, so this may pass a row that commits later; the
-- pipeline reads by difference of snapshots instead.
SELECT seq, xid::text::bigint AS transaction, at, schema_version, event, from_state, to_state,
       job_nos, attempts, wait_us, run_us, workers, failed, ids, correlations, lane_of, lanes
FROM job_event
WHERE seq > %(after)s
ORDER BY seq
LIMIT %(max_rows)s
