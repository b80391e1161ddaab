-- One run at a time per lake. Held by the session until the connection ends.
-- Parameters: the checkpoint's name.
SELECT pg_try_advisory_lock(hashtextextended('queue_operator.pipeline ' || %s, 0))
