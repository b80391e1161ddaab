-- The snapshot of this statement, and the lanes in which jobs wait to be claimed as it sees them,
-- for whatever they wait: all of these, and maybe some where a job of late waited. No parameters.
-- Index: lane_waiting_pkey, whole: a row per lane; those of {{tail}}. Locks: none.
WITH {{tail}}
SELECT pg_current_snapshot()::text, ARRAY(
    SELECT lane_id FROM lane_waiting WHERE namespace_id > 0
    UNION
    SELECT lane_id FROM tail WHERE state IN ({{eligible}}) AND jobs > 0
)
