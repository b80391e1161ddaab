-- Takes the turn to show the figures, or keeps it, and says whether it is ours now.
-- Parameters: holder; ttl_s: how long it is kept, below 0 to give it back.
-- Index: figure_leader_pkey, from its end. Locks: the newest row, if the turn is ours or free.
-- Trap: who has read a version that is gone finds nothing to lock, and asks again later.
WITH taken AS MATERIALIZED (
    SELECT version FROM figure_leader
    WHERE version = (SELECT version FROM figure_leader ORDER BY version DESC LIMIT 1)
      AND (holder = %(holder)s OR until < now())
    FOR UPDATE SKIP LOCKED
), kept AS (
    INSERT INTO figure_leader (version, holder, until)
    SELECT version + 1, %(holder)s, now() + make_interval(secs => %(ttl_s)s) FROM taken
), gone AS (
    DELETE FROM figure_leader WHERE version = (SELECT version FROM taken)
)
SELECT EXISTS (SELECT FROM taken)
