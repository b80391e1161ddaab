-- How many jobs of some lanes a source of a search has, counted no further than a bound.
-- Parameters: lanes (int[]), bonuses (float8[]): of each lane, zero unless the key is order_time;
--   after, before: the ends, exclusive; bound; those of search_condition.sql. Words: source, which
--   is a table, which, key and blocked: the condition of an index, its time, whether jobs wait
--   for others.
-- Index: that of the source, a range per lane. Trap: OFFSET 0 keeps lanes and jobs from being
--   joined in another way, with a plan from when there were few.
SELECT count(*)::int FROM (
    SELECT FROM unnest(%(lanes)s::int[], %(bonuses)s::float8[]) AS s(lane_id, bonus)
    CROSS JOIN LATERAL (
        SELECT state, created_at, changed_at, eligible_at, error_category, error_code,
               {blocked} AS blocked
        FROM {source}
        WHERE {which} AND lane_id = s.lane_id
          AND {key} > %(after)s::timestamptz - make_interval(secs => s.bonus)
          AND {key} < %(before)s::timestamptz - make_interval(secs => s.bonus)
        OFFSET 0
    ) AS moving
    WHERE {condition}
    LIMIT %(bound)s
) AS counted
