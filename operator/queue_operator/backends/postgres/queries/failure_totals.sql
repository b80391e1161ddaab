-- How the failures that match spread over lanes, categories and codes.
-- Parameters: lanes (int[]) and those of search_condition.sql.
-- Index: final_ended_changed and ready_aside_changed, a range of each per lane.
-- Trap: reads all that match; they are what an operator has to look into, so not very many.
SELECT s.lane_id, moving.error ->> 'category', coalesce(moving.error ->> 'code', ''), count(*)::int
FROM unnest(%(lanes)s::int[]) AS s(lane_id)
CROSS JOIN LATERAL (
    SELECT created_at, changed_at, eligible_at, state, error, false AS blocked
    FROM final
    WHERE state <> {{COMPLETED}} AND lane_id = s.lane_id
      AND changed_at > %(changed_after)s AND changed_at < %(changed_before)s
    UNION ALL
    SELECT created_at, changed_at, eligible_at, state, error, blocked
    FROM ready
    WHERE (NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at)
      AND lane_id = s.lane_id
      AND changed_at > %(changed_after)s AND changed_at < %(changed_before)s
) AS moving
WHERE {condition}
GROUP BY 1, 2, 3
