-- Forgets the counts of lanes that are gone, and of their kinds and namespaces where these have no
-- job either; gives how many.
-- Parameters: arrays of equal length, one entry per lane: lanes, namespaces, types, priorities.
-- Index: of each count its newest version, by its primary key. Locks: the rows, of namespaces first,
--   then of kinds, then of lanes, as `count_fold.sql` does; each waits for the one before by counting it.
-- Trap: a fold that works meanwhile adds to nothing, whether it finds the row or not; it may remove
--   it first, and then its own stays. Where a fold stopped on the way no job may be counted and
--   some be blocked all the same, or fewer than none: the next fold goes on from that.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::int[], %(namespaces)s::int[], %(types)s::int[],
                         %(priorities)s::text[])
        AS g(lane_id, namespace_id, type_id, priority)
), spaces AS (
    DELETE FROM namespace_count
    WHERE ctid = ANY (ARRAY(
        SELECT kept.spot
        FROM (SELECT DISTINCT namespace_id FROM given) AS one
        CROSS JOIN LATERAL (
            SELECT ctid AS spot, jobs FROM namespace_count
            WHERE namespace_count.namespace_id = one.namespace_id ORDER BY version DESC LIMIT 1
        ) AS kept WHERE 0 = ALL (kept.jobs)
    ))
    RETURNING 1
), kinds AS (
    DELETE FROM kind_count
    WHERE ctid = ANY (ARRAY(
        SELECT kept.spot
        FROM (SELECT DISTINCT namespace_id, type_id, priority FROM given) AS one
        CROSS JOIN LATERAL (
            SELECT ctid AS spot, jobs, blocked FROM kind_count
            WHERE kind_count.namespace_id = one.namespace_id AND kind_count.type_id = one.type_id
              AND kind_count.priority = one.priority
            ORDER BY version DESC LIMIT 1
        ) AS kept WHERE 0 = ALL (kept.jobs) AND kept.blocked = 0 AND (SELECT count(*) FROM spaces) >= 0
    ))
    RETURNING 1
), lanes AS (
    DELETE FROM lane_count
    WHERE ctid = ANY (ARRAY(
        SELECT kept.spot FROM given CROSS JOIN LATERAL (
            SELECT ctid AS spot, total FROM lane_count
            WHERE lane_count.lane_id = given.lane_id ORDER BY version DESC LIMIT 1
        ) AS kept WHERE kept.total = 0 AND (SELECT count(*) FROM kinds) >= 0
    ))
    RETURNING 1
)
SELECT (SELECT count(*) FROM lanes)::int + (SELECT count(*) FROM kinds)::int
       + (SELECT count(*) FROM spaces)::int
