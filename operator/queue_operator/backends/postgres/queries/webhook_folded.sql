-- Whether there is something to unfold. Parameters: none. Index: webhook_batch_pkey, from its beginning.
-- Locks: none.
SELECT EXISTS (SELECT FROM webhook_batch WHERE number > 0 ORDER BY number LIMIT 1)
