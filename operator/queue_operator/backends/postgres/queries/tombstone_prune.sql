-- Removes the oldest tombstones; gives one row: how many.
-- Parameters: max_age_s double precision, limit integer. Index: tombstone_by_age.
-- Locks: the rows that go; where another replica is at it, this finds fewer.
WITH gone AS (
    DELETE FROM tombstone
    WHERE uid = ANY (ARRAY(
        SELECT uid FROM tombstone
        WHERE deleted_at < now() - make_interval(secs => %(max_age_s)s::double precision)
        ORDER BY deleted_at
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*)::int FROM gone
