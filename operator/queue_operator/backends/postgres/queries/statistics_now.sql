-- How many jobs of a namespace there are now, by type, priority and state; and how many of these
-- wait for other jobs, and how many for a time that is not over.
-- Parameters: namespace_id.
-- Index: kind_count_pkey, from one type and priority to the next below it, and of each the newest
--   version; lane_waiting_pkey, and of each of these lanes ready_later, from now on, and in
--   ready_undue what is suspended; those of {{tail}}; lane_pkey, job_type_pkey. Locks: none.
-- Traps: what is over in ready_later lies before now, dead or alive. It is made for what says not
--   `NOT due`, but so by `coalesce`: with a plan made for few jobs ready_stage would do as well. The
--   first step begins above all kinds there are.
WITH RECURSIVE {{tail}},
kinds AS (
    SELECT 2147483647 AS type_id, '' AS priority, NULL::text[] AS states, NULL::bigint[] AS jobs,
           NULL::bigint AS blocked
    UNION ALL
    SELECT below.*
    FROM kinds
    CROSS JOIN LATERAL (
        SELECT type_id, priority, states, jobs, blocked
        FROM kind_count
        WHERE namespace_id = %(namespace_id)s
          AND (kind_count.type_id, kind_count.priority) < (kinds.type_id, kinds.priority)
        ORDER BY type_id DESC, priority DESC, version DESC LIMIT 1
    ) AS below
), changed AS MATERIALIZED (
    SELECT tail.lane_id, lane.type_id, lane.priority, tail.state, tail.jobs, tail.blocked
    FROM tail
    CROSS JOIN LATERAL (
        SELECT * FROM lane
        WHERE lane.id = tail.lane_id AND namespace_id = %(namespace_id)s OFFSET 0
    ) AS lane
), waiting AS MATERIALIZED (
    SELECT lane_id FROM lane_waiting WHERE namespace_id = %(namespace_id)s
    UNION
    SELECT lane_id FROM changed WHERE state IN ({{eligible}}) AND jobs > 0
), undue AS MATERIALIZED (
    SELECT waiting.lane_id, found.state, found.later
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT state, count(*) AS later
        FROM ready
        WHERE NOT coalesce(due, true) AND NOT blocked AND ready.lane_id = waiting.lane_id
          AND eligible_at > now()
        GROUP BY state
        UNION ALL
        SELECT state, count(*)
        FROM ready
        WHERE NOT due AND blocked IS NULL AND ready.lane_id = waiting.lane_id AND lane_id > 0
          AND state IN ({{eligible}}) AND eligible_at > now()
        GROUP BY state
    ) AS found
)
SELECT (SELECT name FROM job_type WHERE job_type.id = counted.type_id), priority, state,
       sum(jobs)::bigint, sum(blocked)::bigint, sum(later)::bigint
FROM (
    SELECT type_id, priority, told.state, told.jobs, 0 AS blocked, 0 AS later
    FROM kinds CROSS JOIN LATERAL unnest(states, kinds.jobs) AS told(state, jobs)
    UNION ALL
    SELECT type_id, priority, {{INITIAL_PENDING}}, 0, blocked, 0 FROM kinds
    UNION ALL
    SELECT type_id, priority, state, jobs, blocked, 0 FROM changed
    UNION ALL
    SELECT lane.type_id, lane.priority, state, 0, 0, later
    FROM undue
    CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = undue.lane_id OFFSET 0) AS lane
) AS counted
WHERE state IN ({{eligible}}, {{slot_holding}})
GROUP BY type_id, priority, state
HAVING sum(jobs) <> 0
