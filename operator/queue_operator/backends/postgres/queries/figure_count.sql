-- What a part of the log tells the counters, summed up by the names that are shown: kind (1 submitted,
-- 2 claimed, 3 an attempt that ended, 4 a final state), namespace and type (NULL: shown as other),
-- the event or state, the category of the error, the bucket of the time it took, how many, and the
-- sum of their microseconds.
-- Parameters: wait_bounds and run_bounds (bigint[]): the first microsecond above each bucket; those of
--   {{fresh}}, the rows, and of the part that names.
-- Index: those of the parts; lane_pkey, namespace_pkey, job_type_pkey. Locks: none but of names.
-- Traps: functions in the list of a SELECT are unnested without being stored first. A lane that is
--   gone was not used for long, and its jobs are shown as other. An attempt that was lost has ended;
--   what comes of it late is no other one. OFFSET 0 keeps the planner from starting at the lanes.
WITH fresh AS MATERIALIZED (
{{fresh}}
), classed AS MATERIALIZED (
    SELECT event, to_state, lane_ids, lane_of, us,
           from_state IN ({{slot_holding}}) AND to_state NOT IN ({{slot_holding}}) AS ends,
           to_state IN ({{terminal}}) AS is_final,
           CASE WHEN failed IS NOT NULL THEN ARRAY(
               SELECT f ->> 'category'
               FROM jsonb_array_elements(failed) WITH ORDINALITY AS e(f, place) ORDER BY place
           ) END AS categories
    FROM fresh WHERE lane_ids IS NOT NULL
), cells AS MATERIALIZED (
    SELECT kind, lane_id, told, category, bucket, count(*) AS n, sum(us) AS us
    FROM (
        SELECT 1 AS kind, lane_ids[place + 1] AS lane_id, NULL AS told, NULL AS category,
               NULL::integer AS bucket, NULL::bigint AS us
        FROM (SELECT lane_ids, unnest(lane_of) AS place FROM classed WHERE event = 'SUBMIT')
            AS submissions
        UNION ALL
        SELECT 2, lane_id, NULL, NULL,
               width_bucket(us, (SELECT %(wait_bounds)s::bigint[])), us
        FROM (
            SELECT unnest(lane_ids) AS lane_id, unnest(us) AS us FROM classed WHERE event = 'CLAIM'
        ) AS claims
        UNION ALL
        SELECT 3, lane_id, event, category,
               width_bucket(us, (SELECT %(run_bounds)s::bigint[])), us
        FROM (
            SELECT event, unnest(lane_ids) AS lane_id, unnest(us) AS us,
                   unnest(categories) AS category
            FROM classed WHERE ends
        ) AS attempts
        WHERE us IS NOT NULL
        UNION ALL
        SELECT 4, unnest(lane_ids), to_state, NULL, NULL, NULL FROM classed WHERE is_final
    ) AS told_of
    GROUP BY kind, lane_id, told, category, bucket
), placed AS MATERIALIZED (
    SELECT kind, coalesce(lane.namespace_id, 0) AS namespace_id, coalesce(lane.type_id, 0) AS type_id,
           told, category, bucket, n, us
    FROM cells
    LEFT JOIN LATERAL (
        SELECT namespace_id, type_id FROM lane WHERE lane.id = cells.lane_id OFFSET 0
    ) AS lane ON true
), used AS MATERIALIZED (
    SELECT namespace_id, type_id, sum(n) AS n FROM placed
    WHERE namespace_id > 0 GROUP BY namespace_id, type_id
), {{named}}, shown AS (
    SELECT kind, CASE WHEN by_pair OR by_space THEN namespace_id ELSE 0 END AS namespace_id,
           CASE WHEN by_pair THEN type_id ELSE 0 END AS type_id, told, category, bucket, n, us
    FROM (
        SELECT placed.*,
               (namespace_id, type_id) IN (SELECT namespace_id, type_id FROM named) AS by_pair,
               namespace_id IN (SELECT namespace_id FROM named WHERE type_id = 0) AS by_space
        FROM placed
    ) AS placed_by
), summed AS MATERIALIZED (
    SELECT kind, namespace_id, type_id, told, category, bucket, sum(n)::bigint AS n,
           sum(us)::bigint AS us
    FROM shown GROUP BY kind, namespace_id, type_id, told, category, bucket
)
SELECT kind, (SELECT name FROM namespace WHERE namespace.id = summed.namespace_id),
       (SELECT name FROM job_type WHERE job_type.id = summed.type_id),
       told, category, bucket, n, us
FROM summed
