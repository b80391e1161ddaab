-- A connection that listens says nothing for hours; a server that ends idle sessions would end it
-- again and again. Holds for this session.
SELECT set_config('idle_session_timeout', '0', false)
