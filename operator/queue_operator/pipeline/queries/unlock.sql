-- The end of a run. Closing the connection would do it too, but some time afterwards.
-- Parameters: the checkpoint's name.
SELECT pg_advisory_unlock(hashtextextended('queue_operator.pipeline ' || %s, 0))
