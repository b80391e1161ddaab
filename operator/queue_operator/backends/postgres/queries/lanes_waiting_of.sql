-- The lanes of a namespace in which jobs wait to be claimed, for whatever they wait: all of these, and
-- maybe some where a job of late waited. Parameters: namespace_id.
-- Index: lane_waiting_pkey, a range; those of {{tail}}, and lane_pkey. Locks: none.
WITH {{tail}}
SELECT ARRAY(
    SELECT lane_id FROM lane_waiting WHERE namespace_id = %(namespace_id)s
    UNION
    SELECT lane_id FROM tail
    CROSS JOIN LATERAL (
        SELECT FROM lane
        WHERE lane.id = tail.lane_id AND namespace_id = %(namespace_id)s OFFSET 0
    ) AS lane
    WHERE state IN ({{eligible}}) AND jobs > 0
)
