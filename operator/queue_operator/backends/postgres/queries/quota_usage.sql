-- How many jobs of some namespaces wait, whatever for, and how many hold a slot.
-- Parameters: namespaces (text[]). Index: namespace_name_key,
--   lane_namespace_id_type_id_priority_tags_key, then lane_count_pkey; the changes not yet folded
--   are read whole. One snapshot, so a change that is being folded counts once.
-- Traps: as in `count_stats.sql`.
WITH wanted AS MATERIALIZED (
    SELECT lane.id, lane.namespace_id
    FROM unnest(%(namespaces)s::text[]) AS given(name)
    CROSS JOIN LATERAL (
        SELECT lane.id, lane.namespace_id FROM lane
        WHERE lane.namespace_id = (SELECT id FROM namespace WHERE name = given.name)
    ) AS lane
), counted AS (
    SELECT lane_id, state, jobs FROM lane_count
    WHERE lane_id = ANY (ARRAY(SELECT id FROM wanted))
      AND state IN ({{eligible}}, {{slot_holding}})
    UNION ALL
    SELECT lane_id, state, jobs FROM count_delta
    WHERE (lane_id IN (SELECT id FROM wanted)) IS TRUE
      AND state IN ({{eligible}}, {{slot_holding}})
), by_lane AS (
    SELECT lane_id, coalesce(sum(jobs) FILTER (WHERE state IN ({{eligible}})), 0) AS waiting,
           coalesce(sum(jobs) FILTER (WHERE state IN ({{slot_holding}})), 0) AS running
    FROM counted GROUP BY lane_id
)
SELECT space.name, sum(waiting)::bigint, sum(running)::bigint
FROM by_lane
CROSS JOIN LATERAL (
    SELECT namespace.name FROM lane JOIN namespace ON namespace.id = lane.namespace_id
    WHERE lane.id = by_lane.lane_id OFFSET 0
) AS space
GROUP BY space.name
