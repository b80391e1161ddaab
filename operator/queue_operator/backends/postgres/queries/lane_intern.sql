-- The numbers of some lanes, made where they are missing; a lane is left out whose namespace or type
-- is missing or is being removed, or that somebody else is just making.
-- Parameters, aligned by position, no lane twice: namespaces, types, priorities (text[]), tags
--   (text[]: of each lane a sorted array as text). used_s: what was noted as used before that many
--   seconds is noted again. Gives the time, and the place from 1 and number of each.
-- Runs in a transaction of its own, before the submission: a lane that nobody uses does no harm.
-- Index: namespace_name_key, job_type_name_key, lane_namespace_id_type_id_priority_tags_key, lane_pkey.
-- Locks: the lanes made, in the order of their key, so that two of these never wait in a circle, and
--   those noted as used.
-- Traps: a lane that is used stays for longer than any submission takes; see `lane_remove.sql`. The
--   sets that IS TRUE keeps from becoming joins would be planned as loops over both.
WITH given AS MATERIALIZED (
    SELECT g.n, space.id AS namespace_id, kind.id AS type_id, g.priority, g.tags::text[] AS tags
    FROM unnest(%(namespaces)s::text[], %(types)s::text[], %(priorities)s::text[], %(tags)s::text[])
        WITH ORDINALITY AS g(namespace, type, priority, tags, n)
    CROSS JOIN LATERAL (
        SELECT id FROM namespace WHERE name = g.namespace AND retired_at IS NULL LIMIT 1
    ) AS space
    CROSS JOIN LATERAL (SELECT id FROM job_type WHERE name = g.type LIMIT 1) AS kind
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
), used AS (
    UPDATE lane SET used_at = now(), retired = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM known WHERE is_stale ORDER BY id))
    RETURNING id
), fresh AS MATERIALIZED (
    SELECT *, nextval('lane_id_seq') AS id
    FROM given WHERE (n IN (SELECT n FROM known)) IS NOT TRUE
), made AS (
    INSERT INTO lane (id, namespace_id, type_id, priority, tags)
    OVERRIDING SYSTEM VALUE
    SELECT id, namespace_id, type_id, priority, tags FROM fresh
    ORDER BY namespace_id, type_id, priority, tags
    ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT now(), n::int, id FROM known
WHERE NOT is_stale OR (id IN (SELECT id FROM used)) IS TRUE
UNION ALL
SELECT now(), n::int, id FROM fresh WHERE (id IN (SELECT id FROM made)) IS TRUE
