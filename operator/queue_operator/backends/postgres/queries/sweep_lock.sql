-- Waits until no other sweeper is at it, and then is the only one until the transaction ends.
-- Parameters: lock, any number as long as all take the same; patience: how long to wait, text with
--   its unit. Index: none. Locks: that one.
-- Trap: the columns are computed from left to right. Other locks are waited for as long as a
--   statement may take.
SELECT set_config('lock_timeout', %(patience)s, true), pg_advisory_xact_lock(%(lock)s),
       set_config('lock_timeout', '0', true)
