-- Of some lanes, by namespace and pool, how many jobs run, and how many could run now; nobody is to
-- run what is paused. Parameters, aligned: lanes (int[]), pools (text[]: '' for none); most: where
-- more of a lane wait for something else, no more than so many are said to be able to run.
-- Index: lane_count_pkey, of each lane from the end; lane_pkey, namespace_pkey, job_type_pkey,
--   pause_pkey; ready_undue of each lane that waits, and where more than `most` are found there,
--   ready_claim; those of {{tail}}. Locks: none.
-- Traps: two CTEs are never joined, since without hash joins that takes the square. OFFSET 0 keeps the
--   planner from starting at the lanes.
WITH {{tail}},
asked AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::int[], %(pools)s::text[]) AS a(lane_id, pool)
), counted AS MATERIALIZED (
    SELECT lane_id, max(pool) AS pool, sum(waiting) AS waiting, sum(running) AS running
    FROM (
        SELECT asked.lane_id, asked.pool, 0 AS waiting, 0 AS running FROM asked
        UNION ALL
        SELECT asked.lane_id, NULL, kept.waiting, (
            SELECT coalesce(sum(told.jobs), 0)
            FROM unnest(kept.states, kept.jobs) AS told(state, jobs)
            WHERE told.state IN ({{slot_holding}})
        )
        FROM asked
        CROSS JOIN LATERAL (
            SELECT waiting, states, jobs FROM lane_count
            WHERE lane_count.lane_id = asked.lane_id ORDER BY version DESC LIMIT 1
        ) AS kept
        UNION ALL
        SELECT lane_id, NULL, CASE WHEN state IN ({{eligible}}) THEN jobs ELSE 0 END,
               CASE WHEN state IN ({{slot_holding}}) THEN jobs ELSE 0 END
        FROM tail WHERE (lane_id IN (SELECT lane_id FROM asked)) IS TRUE
    ) AS parts
    GROUP BY lane_id
), placed AS MATERIALIZED (
    SELECT lane.namespace_id, lane.type_id, counted.*
    FROM counted
    CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.id = counted.lane_id OFFSET 0) AS lane
), able AS MATERIALIZED (
    SELECT placed.namespace_id, pool, running, CASE
        WHEN waiting <= 0 OR EXISTS (
            SELECT FROM pause
            WHERE pause.namespace
                  = (SELECT name FROM namespace WHERE namespace.id = placed.namespace_id)
              AND pause.type IN (
                  '', (SELECT name FROM job_type WHERE job_type.id = placed.type_id))
        ) THEN 0
        WHEN undue.n <= %(most)s THEN greatest(waiting - undue.n, 0)
        ELSE (
            SELECT count(*) FROM (
                SELECT FROM ready WHERE ready.lane_id = placed.lane_id AND due LIMIT %(most)s
            ) AS a_few
        )
    END AS due
    FROM placed
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT FROM ready
            WHERE waiting > 0 AND NOT due AND ready.lane_id = placed.lane_id AND lane_id > 0
            LIMIT %(most)s + 1
        ) AS a_few
    ) AS undue
)
SELECT (SELECT name FROM namespace WHERE namespace.id = summed.namespace_id), pool,
       running, due
FROM (
    SELECT namespace_id, pool, sum(running)::bigint AS running, sum(due)::bigint AS due
    FROM able GROUP BY namespace_id, pool
) AS summed
