-- How the failures that match spread over lanes, categories and codes.
-- Parameters: lanes (int[]); states, categories (text[]), code, where NULL does not filter;
--   changed_after, changed_before (exclusive); refined, permanent and used_up (bool) as in
--   search_condition.sql.
-- Index: final_ended_changed and ready_aside_changed, a range of each per lane; they hold all that
--   is asked here, so that rows are not read once their pages are known to be settled.
-- Trap: reads all that match; they are what people have to look into, so not very many.
SELECT lane_id, error_category, error_code, count(*)::int
FROM (
    SELECT s.lane_id, failed.*
    FROM unnest(%(lanes)s::int[]) AS s(lane_id)
    CROSS JOIN LATERAL (
        SELECT state, error_category, error_code
        FROM final
        WHERE state <> {{COMPLETED}} AND final.lane_id = s.lane_id
          AND changed_at > %(changed_after)s AND changed_at < %(changed_before)s
        UNION ALL
        SELECT state, error_category, error_code
        FROM ready
        WHERE (NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at)
          AND ready.lane_id = s.lane_id
          AND changed_at > %(changed_after)s AND changed_at < %(changed_before)s
    ) AS failed
) AS found
WHERE error_category IS NOT NULL AND state = ANY (%(states)s::text[])
  AND (NOT %(refined)s::bool OR CASE
      WHEN state NOT IN ({{DEAD_LETTER}}) THEN true
      WHEN error_category = 'PERMANENT' THEN %(permanent)s::bool
      ELSE %(used_up)s::bool END)
  AND (%(categories)s::text[] IS NULL OR error_category = ANY (%(categories)s::text[]))
  AND (%(code)s::text IS NULL OR error_code = %(code)s::text)
GROUP BY lane_id, error_category, error_code
