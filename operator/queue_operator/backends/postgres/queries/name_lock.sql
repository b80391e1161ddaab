-- Locks types and namespaces that may go, as `name_remove.sql` says: those without lanes, but for what
-- the roll-ups count by, which stays as long as they do. Gives the numbers of either.
-- Parameters: hidden_s; max_rows, of either; spans (int[]), the lengths of roll-ups in seconds.
-- Index: that of {{used}}; the primary keys of job_type and namespace; these are read whole.
--   roll_up_pkey, once per namespace without lanes. Where there is a type without lanes, one range of
--   roll_up_by_age per span: of the longest all, of the others what is not summed up in longer ones yet.
-- Locks: what it gives, FOR UPDATE: whoever makes a lane of it waits. What somebody holds is passed by:
--   he may make a lane of one, and wait for another.
-- Traps: a lane may have been made since this began, see `name_remove.sql`. Longer spans are kept for
--   longer, so what is summed up need not be looked at: of a type by far the most rows are minutes.
WITH RECURSIVE {{used}}, lone_types AS MATERIALIZED (
    SELECT id FROM job_type WHERE (id IN (SELECT type_id FROM used)) IS NOT TRUE
), lone_spaces AS MATERIALIZED (
    SELECT id FROM namespace
    WHERE (id IN (SELECT namespace_id FROM used)) IS NOT TRUE
      AND (retired_at IS NULL OR retired_at < now() - make_interval(secs => %(hidden_s)s))
), noted AS MATERIALIZED (
    SELECT {{closed}} AS closed_until FROM roll_up_progress ORDER BY version DESC LIMIT 1
), parts AS MATERIALIZED (
    SELECT span_s,
           coalesce(date_bin(make_interval(secs => lead(span_s) OVER (ORDER BY span_s)),
                             closed_until, 'epoch'), '-infinity') AS begins_at
    FROM noted CROSS JOIN unnest(%(spans)s::int[]) AS span(span_s)
), counted AS MATERIALIZED (
    SELECT DISTINCT found.type_id
    FROM parts CROSS JOIN LATERAL (
        SELECT type_id FROM roll_up
        WHERE roll_up.span_s = parts.span_s AND roll_up.span_s > 0
          AND roll_up.begins_at >= parts.begins_at
        OFFSET 0
    ) AS found
    WHERE EXISTS (SELECT FROM lone_types)
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
        SELECT id FROM lone_spaces
        WHERE (SELECT namespace_id FROM roll_up WHERE namespace_id = lone_spaces.id LIMIT 1) IS NULL
        LIMIT %(max_rows)s
    ))
    FOR UPDATE SKIP LOCKED
)
SELECT ARRAY(SELECT id FROM types), ARRAY(SELECT id FROM spaces)
