-- Removes, of the names that `name_lock.sql` locked, types without lanes and, in two steps, namespaces
-- without lanes: a namespace first gets out of sight, and goes when nobody remembers its number. Gives how
-- many went. Parameters: types, spaces (int[]); hidden_s.
-- Index: that of {{used}}; the primary keys of job_type and namespace. Locks: the rows that go.
-- Trap: this is the second statement after the lock, for what it sees: all lanes of whoever held a
--   name before. From then on nobody makes one.
WITH RECURSIVE {{used}}, types AS (
    DELETE FROM job_type
    WHERE id = ANY (%(types)s::int[]) AND (id IN (SELECT type_id FROM used)) IS NOT TRUE
    RETURNING id
), hidden AS (
    UPDATE namespace SET retired_at = now()
    WHERE id = ANY (%(spaces)s::int[]) AND (id IN (SELECT namespace_id FROM used)) IS NOT TRUE
      AND retired_at IS NULL
), spaces AS (
    DELETE FROM namespace
    WHERE id = ANY (%(spaces)s::int[]) AND (id IN (SELECT namespace_id FROM used)) IS NOT TRUE
      AND retired_at < now() - make_interval(secs => %(hidden_s)s)
    RETURNING id
)
SELECT (SELECT count(*) FROM types)::int + (SELECT count(*) FROM spaces)::int
