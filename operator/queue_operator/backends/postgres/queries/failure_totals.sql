-- How the failures that match spread over types, categories and codes.
-- Parameters: lanes (int[]); states, categories (text[]), code, where NULL does not filter;
--   failed_after, failed_before (exclusive); refined, permanent and used_up (bool) as in
--   search_condition.sql.
-- Index: final_failed and ready_failed, a range of each per lane; they hold all that is asked
--   here, so that rows are not read once their pages are known to be settled; then for the type
--   the primary keys of lane and job_type.
-- Trap: reads all that match; they are what people have to look into, so not very many.
WITH counted AS MATERIALIZED (
    SELECT type_id, error_category, error_code, count(*)::int AS jobs
    FROM (
        SELECT s.type_id, failed.*
        FROM unnest(%(lanes)s::int[]) AS l(lane_id)
        CROSS JOIN LATERAL (
            SELECT l.lane_id, lane.type_id FROM lane WHERE lane.id = l.lane_id LIMIT 1
        ) AS s
        CROSS JOIN LATERAL (
            SELECT {{DEAD_LETTER}} AS state, error_category, error_code
            FROM final
            WHERE state IN ({{DEAD_LETTER}}) AND final.lane_id = s.lane_id
              AND coalesce(failed_at, changed_at) > %(failed_after)s
              AND coalesce(failed_at, changed_at) < %(failed_before)s
            UNION ALL
            SELECT {{FAILED_RETRY}}, error_category, error_code
            FROM ready
            WHERE error_category IS NOT NULL AND state IN ({{FAILED_RETRY}})
              AND ready.lane_id = s.lane_id
              AND coalesce(failed_at, changed_at) > %(failed_after)s
              AND coalesce(failed_at, changed_at) < %(failed_before)s
        ) AS failed
    ) AS found
    WHERE error_category IS NOT NULL AND state = ANY (%(states)s::text[])
      AND (NOT %(refined)s::bool OR CASE
          WHEN state NOT IN ({{DEAD_LETTER}}) THEN true
          WHEN error_category = 'PERMANENT' THEN %(permanent)s::bool
          ELSE %(used_up)s::bool END)
      AND (%(categories)s::text[] IS NULL OR error_category = ANY (%(categories)s::text[]))
      AND (%(code)s::text IS NULL OR error_code = %(code)s::text)
    GROUP BY type_id, error_category, error_code
)
SELECT (SELECT name FROM job_type WHERE job_type.id = counted.type_id),
       counted.error_category, counted.error_code, counted.jobs
FROM counted
