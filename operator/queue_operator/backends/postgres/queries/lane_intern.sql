-- The numbers of some lanes, made where they are missing; a lane is left out whose namespace or type
-- is missing or is being removed. In its other form, with {{if_made}}, one is also left out that somebody
-- else is just making, or whose number is in use; without it the statement fails then, and costs a
-- third less. Without `looks`, none is looked for: they are taken for new.
-- Parameters: spaces and kinds (text[]), the names of namespaces and types; and, aligned by
--   position, no lane twice: space_of and kind_of (int[]), the places of its two names in those from 1,
--   priorities (text[]), tags (text[]: of each lane a sorted array as text). used_s: what was noted as used
--   before that many seconds is noted again; looks (boolean). Gives, in one row, the time, the history,
--   two aligned arrays, the places from 1 and the numbers (NULL for none), how many were there, and
--   how many could not be made.
-- Runs in a transaction of its own, before the submission: a lane that nobody uses does no harm.
-- Index: namespace_name_key, job_type_name_key and the primary keys of both, once per name;
--   lane_namespace_id_type_id_priority_tags_key, lane_pkey.
-- Locks: the names of lanes that are made, until these are stored: `name_lock.sql` takes no name that
--   somebody holds, so whoever waits for it is not waited for. The lanes made, in the order of their
--   key, so that two of these never wait in a circle, and those noted as used.
-- Traps: to look for a lane is a quarter of what it takes to make one. While a lane is there its
--   names stay. One that is used stays for longer than any submission takes; see `lane_remove.sql`.
--   The sets that IS TRUE keeps from becoming joins would be planned as loops over both.
WITH spaces AS MATERIALIZED (
    SELECT array_agg(found.id ORDER BY g.place) AS ids
    FROM unnest(%(spaces)s::text[]) WITH ORDINALITY AS g(name, place)
    LEFT JOIN LATERAL (
        SELECT id FROM namespace WHERE name = g.name AND retired_at IS NULL LIMIT 1
    ) AS found ON true
), kinds AS MATERIALIZED (
    SELECT array_agg(found.id ORDER BY g.place) AS ids
    FROM unnest(%(kinds)s::text[]) WITH ORDINALITY AS g(name, place)
    LEFT JOIN LATERAL (SELECT id FROM job_type WHERE name = g.name LIMIT 1) AS found ON true
), given AS MATERIALIZED (
    SELECT n, ((SELECT ids FROM spaces))[space_of] AS namespace_id,
           ((SELECT ids FROM kinds))[kind_of] AS type_id, priority, tags::text[] AS tags
    FROM unnest(%(space_of)s::int[], %(kind_of)s::int[], %(priorities)s::text[], %(tags)s::text[])
        WITH ORDINALITY AS g(space_of, kind_of, priority, tags, n)
), known AS MATERIALIZED (
    SELECT given.n, lane.id,
           lane.retired IS NOT NULL OR lane.used_at < now() - make_interval(secs => %(used_s)s)
               AS is_stale
    FROM given
    CROSS JOIN LATERAL (
        SELECT * FROM lane
        WHERE lane.namespace_id = given.namespace_id AND lane.type_id = given.type_id
          AND lane.priority = given.priority AND lane.tags = given.tags
        LIMIT 1
    ) AS lane
    WHERE %(looks)s
), used AS (
    UPDATE lane SET used_at = now(), retired = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM known WHERE is_stale ORDER BY id))
    RETURNING id
), missing AS MATERIALIZED (
    SELECT * FROM given WHERE (n IN (SELECT n FROM known)) IS NOT TRUE
), held_spaces AS MATERIALIZED (
    SELECT id FROM namespace
    WHERE id = ANY (ARRAY(SELECT DISTINCT namespace_id FROM missing)) AND retired_at IS NULL
    FOR KEY SHARE
), held_kinds AS MATERIALIZED (
    SELECT id FROM job_type WHERE id = ANY (ARRAY(SELECT DISTINCT type_id FROM missing))
    FOR KEY SHARE
), fresh AS MATERIALIZED (
    SELECT *, nextval('lane_id_seq') AS id FROM missing
    WHERE (namespace_id IN (SELECT id FROM held_spaces)) IS TRUE
      AND (type_id IN (SELECT id FROM held_kinds)) IS TRUE
), made AS (
    INSERT INTO lane (id, namespace_id, type_id, priority, tags)
    OVERRIDING SYSTEM VALUE
    SELECT id, namespace_id, type_id, priority, tags FROM fresh
    ORDER BY namespace_id, type_id, priority, tags
    {{if_made}}
    RETURNING id
)
SELECT now(), {{history}}, array_agg(n::int), array_agg(id), (SELECT count(*) FROM known),
       (SELECT count(*) FROM fresh WHERE (id IN (SELECT id FROM made)) IS NOT TRUE)
FROM (
    SELECT n, id FROM known WHERE NOT is_stale OR (id IN (SELECT id FROM used)) IS TRUE
    UNION ALL
    SELECT n, id FROM fresh WHERE (id IN (SELECT id FROM made)) IS TRUE
) AS interned
