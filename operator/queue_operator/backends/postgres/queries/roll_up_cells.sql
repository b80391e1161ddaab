-- Part of others: how often what happened, from rows of the log, by minute, lane, kind and bucket
-- of the time that it took. Parameters: bounds (bigint[]): where each bucket begins; those of
--   {{fresh}}, the rows.
-- Kinds: 1 submitted, 2 claimed, 3 COMPLETED, 4 DEAD_LETTER, 5 cancelled, 6 an attempt that failed
--   and is tried again, 7 FAILED.
-- Index: for rows of an older release job_pkey, or the keys of namespace, job_type and lane.
-- Traps: functions in the list of a SELECT are unnested without being stored first. How long a
--   job that was given up ran nobody knows.
fresh AS MATERIALIZED (
{{fresh}}
), classed AS (
    SELECT date_bin('1 minute', at, 'epoch') AS minute,
           CASE WHEN event = 'SUBMIT' THEN 1 WHEN event = 'CLAIM' THEN 2
                WHEN to_state IN ({{COMPLETED}}) THEN 3 WHEN to_state IN ({{DEAD_LETTER}}) THEN 4
                WHEN to_state IN ({{terminal}}) THEN 5 ELSE 6 END AS kind,
           coalesce(lane_ids, CASE WHEN event = 'SUBMIT' THEN ARRAY(
               SELECT (
                   SELECT lane.id FROM lane
                   WHERE namespace_id = (SELECT id FROM namespace WHERE name = l ->> 'namespace')
                     AND type_id = (SELECT id FROM job_type WHERE name = l ->> 'type')
                     AND priority = l ->> 'priority'
                     AND tags = ARRAY(SELECT jsonb_array_elements_text(l -> 'tags'))
               )
               FROM jsonb_array_elements(lanes) WITH ORDINALITY AS e(l, place) ORDER BY place
           ) ELSE ARRAY(
               SELECT (SELECT job.lane_id FROM job WHERE job.job_no = e.job_no)
               FROM unnest(job_nos) WITH ORDINALITY AS e(job_no, place) ORDER BY place
           ) END) AS lane_ids,
           lane_of,
           CASE WHEN to_state NOT IN ({{UNKNOWN_STOPPED}}) THEN us END AS us,
           CASE WHEN to_state IN ({{DEAD_LETTER}}) AND failed IS NOT NULL THEN ARRAY(
               SELECT f ->> 'category' = 'PERMANENT'
               FROM jsonb_array_elements(failed) WITH ORDINALITY AS e(f, place) ORDER BY place
           ) END AS permanent
    FROM fresh
    WHERE event IN ('SUBMIT', 'CLAIM', 'FAIL') OR to_state IN ({{terminal}})
), cells AS MATERIALIZED (
    SELECT minute, lane_id, CASE WHEN kind = 4 AND permanent THEN 7 ELSE kind END AS kind, bucket,
           count(*) AS n, max(us) AS max_us
    FROM (
        SELECT minute, lane_id, kind, permanent, us,
               width_bucket(us, (SELECT %(bounds)s::bigint[])) - 1 AS bucket
        FROM (
            SELECT minute, kind, unnest(lane_ids) AS lane_id, unnest(permanent) AS permanent,
                   unnest(us) AS us
            FROM classed WHERE kind > 1
        ) AS entries
        UNION ALL
        SELECT minute, lane_ids[place + 1], kind, NULL, NULL, NULL
        FROM (SELECT minute, kind, lane_ids, unnest(lane_of) AS place FROM classed WHERE kind = 1)
            AS submissions
    ) AS told
    WHERE lane_id IS NOT NULL
    GROUP BY minute, lane_id, CASE WHEN kind = 4 AND permanent THEN 7 ELSE kind END, bucket
)
