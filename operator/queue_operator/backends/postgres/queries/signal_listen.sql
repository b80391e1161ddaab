-- Subscribes this connection to the announcements of `signal_announce.sql`. Behind a pooler
-- in transaction mode this is accepted and without effect.
LISTEN queue_operator
