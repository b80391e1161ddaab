-- Lanes above a number whose jobs have a tag `pool=…`: number, namespace and pool. Parameters: after.
-- Index: lane_pkey, from there on; namespace_pkey. Locks: none.
-- Traps: numbers are given out before the commit, so a lane may be passed by until all are read again.
SELECT lane.id, (SELECT name FROM namespace WHERE namespace.id = lane.namespace_id), pool.name
FROM lane
CROSS JOIN LATERAL (
    SELECT substr(tag, 6) AS name FROM unnest(tags) AS tag
    WHERE starts_with(tag, 'pool=') ORDER BY tag LIMIT 1
) AS pool
WHERE lane.id > %(after)s
ORDER BY lane.id
