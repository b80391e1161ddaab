-- How many dead jobs of some lanes failed for good, or used up their attempts; counted no further
-- than a bound. Parameters: lanes (int[]); permanent (bool): which of the two; bound.
-- Index: final_failed, a range per lane, and no rows. Trap: as search_count_lanes.sql.
SELECT count(*)::int FROM (
    SELECT FROM unnest(%(lanes)s::int[]) AS s(lane_id)
    CROSS JOIN LATERAL (
        SELECT error_category FROM final
        WHERE state IN ({{DEAD_LETTER}}) AND final.lane_id = s.lane_id
        OFFSET 0
    ) AS dead
    WHERE (dead.error_category IS NOT DISTINCT FROM 'PERMANENT') = %(permanent)s::bool
    LIMIT %(bound)s
) AS counted
