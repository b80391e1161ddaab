-- How many jobs of some lanes, in whatever state, a search has; counted no further than a bound.
-- Parameters: lanes (int[]); after, before: the ends of their creation, exclusive; bound; plain,
--   in_final, in_ready and in_lease as in search_jobs.sql; those of search_condition.sql.
-- Index: job_by_lane, a range per lane; where something is asked of the job's state, the primary
--   keys of final, ready and lease. Trap: as search_count_lanes.sql.
SELECT count(*)::int FROM (
    SELECT FROM unnest(%(lanes)s::int[]) AS s(lane_id)
    CROSS JOIN LATERAL (
        SELECT job_no FROM job
        WHERE lane_id = s.lane_id AND lane_id > 0
          AND created_at > %(after)s AND created_at < %(before)s
        OFFSET 0
    ) AS looked
    LEFT JOIN LATERAL (
        SELECT state, created_at, changed_at, eligible_at, error, false AS blocked
        FROM final WHERE final.job_no = looked.job_no AND %(in_final)s::bool
        UNION ALL
        SELECT state, created_at, changed_at, eligible_at, error, blocked
        FROM ready WHERE ready.job_no = looked.job_no AND %(in_ready)s::bool
        UNION ALL
        SELECT state, created_at, changed_at, eligible_at, error, false
        FROM lease WHERE lease.job_no = looked.job_no AND %(in_lease)s::bool
        LIMIT 1
    ) AS moving ON true
    WHERE %(plain)s::bool OR ({condition})
    LIMIT %(bound)s
) AS counted
