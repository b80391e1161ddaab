-- Takes idempotency keys for new jobs; gives the numbers of the jobs that got theirs.
-- Parameters: arrays of equal length, one entry per key, sorted by namespace and key, so that
--   two batches never wait for each other in a circle: namespaces (int), keys, numbers,
--   digests; glance (text, such as '50ms': how long to wait for a lock, for the rest of the
--   transaction; NULL: as set). Index: idempotency_pkey. Locks: the new rows.
-- Traps: where a key is being taken by a transaction that is still open, this waits for its
--   end; who then has it is seen by the next statement only.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout',
                      coalesce(%(glance)s::text, current_setting('lock_timeout')), true)
)
INSERT INTO idempotency (namespace_id, key, job_no, digest)
SELECT given.* FROM patience CROSS JOIN
    unnest(%(namespaces)s::int[], %(keys)s::text[], %(numbers)s::bigint[],
           %(digests)s::bytea[]) AS given
ON CONFLICT (namespace_id, key) DO NOTHING
RETURNING job_no
