-- Removes types without lanes and, in two steps, namespaces without lanes: a namespace first gets out of
-- sight, and goes when nobody remembers its number. What the roll-ups count by stays as long as they
-- do. Gives how many went. Parameters: hidden_s; max_rows.
-- Index: the primary keys of job_type and namespace, in part; lane_by_type,
--   lane_namespace_id_type_id_priority_tags_key; where there is such a name the roll-ups are read
--   whole. Locks: the rows that go.
-- Trap: a lane that is made at the same time keeps its names by its foreign keys, and this fails.
WITH lone_types AS MATERIALIZED (
    SELECT id FROM job_type
    WHERE NOT EXISTS (SELECT FROM lane WHERE lane.type_id + 0 = job_type.id OFFSET 0)
    LIMIT %(max_rows)s
), lone_spaces AS MATERIALIZED (
    SELECT id, retired_at FROM namespace
    WHERE NOT EXISTS (SELECT FROM lane WHERE lane.namespace_id = namespace.id OFFSET 0)
    LIMIT %(max_rows)s
), counted AS MATERIALIZED (
    SELECT DISTINCT namespace_id, type_id FROM roll_up
    WHERE EXISTS (SELECT FROM lone_types) OR EXISTS (SELECT FROM lone_spaces)
), free_spaces AS MATERIALIZED (
    SELECT id, retired_at FROM lone_spaces
    WHERE (id IN (SELECT namespace_id FROM counted)) IS NOT TRUE
), types AS (
    DELETE FROM job_type
    WHERE id = ANY (ARRAY(
        SELECT id FROM lone_types WHERE (id IN (SELECT type_id FROM counted)) IS NOT TRUE
    ))
    RETURNING id
), hidden AS (
    UPDATE namespace SET retired_at = now()
    WHERE id = ANY (ARRAY(SELECT id FROM free_spaces)) AND retired_at IS NULL
), spaces AS (
    DELETE FROM namespace
    WHERE id = ANY (ARRAY(
        SELECT id FROM free_spaces
        WHERE retired_at < now() - make_interval(secs => %(hidden_s)s)
    )) AND retired_at IS NOT NULL
    RETURNING id
)
SELECT (SELECT count(*) FROM types)::int + (SELECT count(*) FROM spaces)::int
