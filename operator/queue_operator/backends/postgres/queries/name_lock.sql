-- Locks types and namespaces that may go, as `name_remove.sql` says: those without lanes, but for what
-- the roll-ups count by, which stays as long as they do. Gives the numbers of either.
-- Parameters: hidden_s; max_rows, of either.
-- Index: that of {{used}}; the primary keys of job_type and namespace; these are read whole, and where
--   there is such a name the roll-ups are.
-- Locks: what it gives, FOR UPDATE: whoever makes a lane of it waits. What somebody holds is passed by:
--   he may make a lane of one, and wait for another.
-- Trap: a lane may have been made since this began, see `name_remove.sql`.
WITH RECURSIVE {{used}}, lone_types AS MATERIALIZED (
    SELECT id FROM job_type WHERE (id IN (SELECT type_id FROM used)) IS NOT TRUE
), lone_spaces AS MATERIALIZED (
    SELECT id FROM namespace
    WHERE (id IN (SELECT namespace_id FROM used)) IS NOT TRUE
      AND (retired_at IS NULL OR retired_at < now() - make_interval(secs => %(hidden_s)s))
), counted AS MATERIALIZED (
    SELECT DISTINCT namespace_id, type_id FROM roll_up
    WHERE EXISTS (SELECT FROM lone_types) OR EXISTS (SELECT FROM lone_spaces)
), types AS MATERIALIZED (
    SELECT id FROM job_type
    WHERE id = ANY (ARRAY(
        SELECT id FROM lone_types WHERE (id IN (SELECT type_id FROM counted)) IS NOT TRUE
        LIMIT %(max_rows)s
    ))
    FOR UPDATE SKIP LOCKED
), spaces AS MATERIALIZED (
    SELECT id FROM namespace
    WHERE id = ANY (ARRAY(
        SELECT id FROM lone_spaces WHERE (id IN (SELECT namespace_id FROM counted)) IS NOT TRUE
        LIMIT %(max_rows)s
    ))
    FOR UPDATE SKIP LOCKED
)
SELECT ARRAY(SELECT id FROM types), ARRAY(SELECT id FROM spaces)
