-- Part of others: what the lanes `asked` stand for, `told`, but for the names of their namespaces and
-- types; and these, once each, in one row `names`: arrays of a number, as text, and a name.
-- Parameters: none; it reads `asked`. Index: lane_pkey, once through it (before PostgreSQL 17, a look-up
--   per lane); the primary keys of namespace and job_type.
-- Trap: to join the names would be two more look-ups per lane.
told AS MATERIALIZED (
    SELECT id, namespace_id, type_id, priority, tags, row_number() OVER () AS place
    FROM lane WHERE id = ANY (ARRAY(SELECT lane_id FROM asked))
), names AS MATERIALIZED (
    SELECT ARRAY(
               SELECT ARRAY[id::text, name] FROM namespace
               WHERE id = ANY (ARRAY(SELECT DISTINCT namespace_id FROM told))
           ) AS spaces,
           ARRAY(
               SELECT ARRAY[id::text, name] FROM job_type
               WHERE id = ANY (ARRAY(SELECT DISTINCT type_id FROM told))
           ) AS kinds
)
