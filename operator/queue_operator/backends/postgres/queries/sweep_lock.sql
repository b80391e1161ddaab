-- Waits until no other sweeper is at it, and then is the only one until the transaction ends.
-- Parameters: lock, any number as long as all take the same. Index: none. Locks: that one.
SELECT pg_advisory_xact_lock(%(lock)s)
