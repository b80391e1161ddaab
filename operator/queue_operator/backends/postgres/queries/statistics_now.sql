-- How many jobs of a namespace there are now, by type, priority and state; and how many of these
-- wait for other jobs, and how many for a time that is not over.
-- Parameters: namespace_id.
-- Index: lane_namespace_id_type_id_priority_tags_key, lane_count_pkey; ready_undue, of the lanes'
--   jobs that are not due; ready_stage, of those of them whose time is over; ready_pkey, job_type_pkey.
--   The changes not yet folded are read whole. One snapshot. Locks: none.
-- Traps: a job whose time is over is made due a moment later, or not at all when it has no
--   attempt left; such jobs are few, wherever they are. The array leaves the planner no choice.
--   ready_undue is made for what says `lane_id > 0`.
WITH wanted AS MATERIALIZED (
    SELECT id FROM lane WHERE namespace_id = %(namespace_id)s
), counted AS (
    SELECT lane_id, state, jobs, 0::bigint AS blocked, 0::bigint AS later FROM lane_count
    WHERE lane_id = ANY (ARRAY(SELECT id FROM wanted))
      AND state IN ({{eligible}}, {{slot_holding}})
    UNION ALL
    SELECT lane_id, state, jobs, 0, 0 FROM count_delta
    WHERE (lane_id IN (SELECT id FROM wanted)) IS TRUE
      AND state IN ({{eligible}}, {{slot_holding}})
    UNION ALL
    SELECT lane_id, state, 0, count(*) FILTER (WHERE blocked), count(*) FILTER (WHERE NOT blocked)
    FROM ready
    WHERE NOT due AND lane_id > 0 AND lane_id = ANY (ARRAY(SELECT id FROM wanted))
    GROUP BY lane_id, state
    UNION ALL
    SELECT lane_id, state, 0, 0, -count(*)
    FROM ready
    WHERE NOT due AND NOT blocked AND eligible_at <= now()
      AND (lane_id IN (SELECT id FROM wanted)) IS TRUE
    GROUP BY lane_id, state
)
SELECT kind.type, kind.priority, state, sum(jobs)::bigint, sum(blocked)::bigint, sum(later)::bigint
FROM (
    SELECT lane_id, state, sum(jobs) AS jobs, sum(blocked) AS blocked, sum(later) AS later
    FROM counted GROUP BY lane_id, state
) AS by_lane
CROSS JOIN LATERAL (
    SELECT job_type.name AS type, lane.priority
    FROM lane JOIN job_type ON job_type.id = lane.type_id
    WHERE lane.id = by_lane.lane_id OFFSET 0
) AS kind
GROUP BY kind.type, kind.priority, state
HAVING sum(jobs) <> 0
