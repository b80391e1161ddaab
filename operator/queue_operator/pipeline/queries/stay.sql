-- A server that ends idle sessions would end the one that holds the lock of a run.
SELECT set_config('idle_session_timeout', '0', false)
