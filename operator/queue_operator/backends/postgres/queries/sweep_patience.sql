-- How long this transaction waits for a lock. Parameters: patience, text with its unit; '0': for
-- as long as a statement may take. Index: none. Locks: none.
SELECT set_config('lock_timeout', %(patience)s, true)
