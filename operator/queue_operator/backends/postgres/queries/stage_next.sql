-- Seconds until the next job becomes due; no row when none waits for a time.
-- Index: ready_stage. Locks: none.
SELECT extract(epoch FROM eligible_at - now())::float8 FROM ready
WHERE NOT due AND NOT blocked AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
ORDER BY eligible_at LIMIT 1
