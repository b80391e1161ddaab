-- Whether there is something to unfold. Parameters: after (bigint: up to there all was unfolded).
-- Index: webhook_batch_pkey, from there on. Locks: none.
SELECT EXISTS (SELECT FROM webhook_batch WHERE number > %(after)s::bigint ORDER BY number LIMIT 1)
