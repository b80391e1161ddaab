-- Lanes of which a part of the log tells, and the last number of the log. Parameters: those of
-- {{fresh}}. Index: those of the part; job_event_pkey, from its end. Locks: none.
-- Trap: of large arrays nothing is read but these.
WITH fresh AS MATERIALIZED (
{{fresh}}
)
SELECT (SELECT coalesce(max(seq), 0) FROM job_event WHERE seq > 0),
       ARRAY(SELECT DISTINCT lane_id FROM fresh, unnest(lane_ids) AS lane_id)
