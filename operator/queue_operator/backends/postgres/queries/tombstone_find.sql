-- How the deleted jobs of resources ended. Parameters: uids (text[]). Index: tombstone_pkey.
SELECT found.* FROM unnest(%(uids)s::text[]) AS wanted(uid)
CROSS JOIN LATERAL (
    SELECT uid, state, permanent, transition, attempt, created_at, finalized_at
    FROM tombstone WHERE tombstone.uid = wanted.uid LIMIT 1
) found
