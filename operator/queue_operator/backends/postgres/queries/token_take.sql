-- Takes tokens from a bucket, or gives how many are lacking. `backends.tokens` says the rules. Gives
-- no row where another took at the same time: to be asked again.
-- Parameters: name; amount (below 0: they are given back), rate_per_s and burst (float8).
-- Index: token_bucket_pkey, from the bucket's newest version, then that one. Locks: it; who had to
--   wait for it finds it removed.
-- Traps: a key is free again once its row is removed, so two who add the same version do not always
--   notice each other; the lock on the version before tells them apart, and of a new bucket the row
--   of version 0, which stays for ever and is no state of it. The clock is read with the lock held.
WITH newest AS MATERIALIZED (
    SELECT version FROM token_bucket
    WHERE name = %(name)s AND version > 0 ORDER BY version DESC LIMIT 1
), kept AS MATERIALIZED (
    SELECT ctid AS spot, version, tokens, filled_at FROM token_bucket
    WHERE name = %(name)s AND version = (SELECT version FROM newest)
    FOR UPDATE
), made AS (
    INSERT INTO token_bucket (name, version, tokens, filled_at)
    SELECT %(name)s, 0, 0, clock_timestamp() WHERE NOT EXISTS (SELECT FROM newest)
    ON CONFLICT (name, version) DO NOTHING
    RETURNING 1
), filled AS MATERIALIZED (
    SELECT version, at, least(%(burst)s::float8, tokens + %(rate_per_s)s::float8
               * greatest(extract(epoch FROM at - filled_at)::float8, 0)) AS tokens
    FROM (SELECT kept.*, clock_timestamp() AS at FROM kept OFFSET 0) AS looked
    UNION ALL
    SELECT 0, clock_timestamp(), %(burst)s::float8 FROM made
), taken AS (
    INSERT INTO token_bucket (name, version, tokens, filled_at)
    SELECT %(name)s, version + 1, least(tokens - %(amount)s::float8, %(burst)s::float8), at
    FROM filled
    WHERE version = 0 OR %(amount)s::float8 < 0
       OR tokens >= least(%(amount)s::float8, %(burst)s::float8)
    RETURNING 1
), gone AS (
    DELETE FROM token_bucket
    WHERE ctid = ANY (ARRAY(SELECT spot FROM kept WHERE EXISTS (SELECT FROM taken)))
)
SELECT EXISTS (SELECT FROM taken), least(%(amount)s::float8, %(burst)s::float8) - tokens
FROM filled
