-- Part of others: each pair of a namespace and a type that a lane has, and a first row below all.
-- No parameters. Index: lane_namespace_id_type_id_priority_tags_key, from one pair to the next above it.
used AS (
    SELECT -1 AS namespace_id, -1 AS type_id
    UNION ALL
    SELECT above.*
    FROM used
    CROSS JOIN LATERAL (
        SELECT namespace_id, type_id FROM lane
        WHERE (lane.namespace_id, lane.type_id) > (used.namespace_id, used.type_id)
        ORDER BY namespace_id, type_id LIMIT 1
    ) AS above
)
