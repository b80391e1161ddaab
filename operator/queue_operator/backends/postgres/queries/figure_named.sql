-- Part of others: of the pairs `used` (namespace_id, type_id, n) which are shown by name, namespaces
-- with type 0 among them; who has none gets one while there are some left, the largest first.
-- Parameters: max_pairs, max_namespaces; touch_s: how long a use is not noted anew.
-- Index: figure_name_pkey; whole where it is counted: it has no more rows than these two allow.
-- Locks: the names that are noted as used.
-- Trap: what another part of the statement writes is not seen, so it is told by RETURNING.
known AS MATERIALIZED (
    SELECT namespace_id, type_id FROM figure_name WHERE namespace_id > 0
), nameless AS MATERIALIZED (
    SELECT namespace_id, type_id, n FROM used
    WHERE ((namespace_id, type_id) IN (SELECT namespace_id, type_id FROM known)) IS NOT TRUE
), pairs_named AS (
    INSERT INTO figure_name (namespace_id, type_id)
    SELECT namespace_id, type_id FROM nameless ORDER BY n DESC, namespace_id, type_id
    LIMIT greatest(%(max_pairs)s - (SELECT count(*) FROM known WHERE type_id > 0), 0)
    ON CONFLICT DO NOTHING
    RETURNING namespace_id, type_id
), spaces AS MATERIALIZED (
    SELECT namespace_id, sum(n) AS n FROM nameless
    WHERE ((namespace_id, type_id) IN (SELECT namespace_id, type_id FROM pairs_named)) IS NOT TRUE
    GROUP BY namespace_id
), spaces_named AS (
    INSERT INTO figure_name (namespace_id, type_id)
    SELECT namespace_id, 0 FROM spaces
    WHERE (namespace_id IN (SELECT namespace_id FROM known WHERE type_id = 0)) IS NOT TRUE
    ORDER BY n DESC, namespace_id
    LIMIT greatest(%(max_namespaces)s - (SELECT count(*) FROM known WHERE type_id = 0), 0)
    ON CONFLICT DO NOTHING
    RETURNING namespace_id, type_id
), touched AS (
    UPDATE figure_name SET used_at = now()
    WHERE used_at < now() - make_interval(secs => %(touch_s)s)
      AND ((namespace_id, type_id) IN (SELECT namespace_id, type_id FROM used) IS TRUE
           OR type_id = 0 AND (namespace_id IN (SELECT namespace_id FROM spaces)) IS TRUE)
), named AS MATERIALIZED (
    SELECT namespace_id, type_id FROM known
    UNION ALL
    SELECT namespace_id, type_id FROM pairs_named
    UNION ALL
    SELECT namespace_id, type_id FROM spaces_named
)
