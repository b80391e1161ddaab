-- Takes tokens from a bucket, or gives how many are lacking. `backends.tokens` says the rules. Where
-- none are lacking and nothing was taken, somebody else took meanwhile: to be asked again.
-- Parameters: name; amount (below 0: they are given back), rate_per_s and burst (float8).
-- Index: token_bucket_pkey, from the bucket's newest version. Locks: of two that add the same
--   version the second waits for the first.
-- Trap: whoever had to wait knows only the version before: so it adds nothing.
WITH kept AS MATERIALIZED (
    SELECT version, tokens, filled_at FROM token_bucket
    WHERE name = %(name)s ORDER BY version DESC LIMIT 1
), filled AS MATERIALIZED (
    SELECT coalesce(version, 0) AS version, clock.at,
           least(coalesce(
               tokens + greatest(extract(epoch FROM clock.at - filled_at)::float8, 0)
                        * %(rate_per_s)s::float8, %(burst)s::float8), %(burst)s::float8) AS tokens
    FROM (SELECT clock_timestamp() AS at OFFSET 0) AS clock LEFT JOIN kept ON true
), taken AS (
    INSERT INTO token_bucket (name, version, tokens, filled_at)
    SELECT %(name)s, version + 1, least(tokens - %(amount)s::float8, %(burst)s::float8), at
    FROM filled
    WHERE %(amount)s::float8 < 0 OR tokens >= least(%(amount)s::float8, %(burst)s::float8)
    ON CONFLICT (name, version) DO NOTHING
    RETURNING version
), gone AS (
    DELETE FROM token_bucket WHERE name = %(name)s AND version = (SELECT version - 1 FROM taken)
)
SELECT EXISTS (SELECT FROM taken),
       CASE WHEN %(amount)s::float8 < 0 THEN 0
            ELSE least(%(amount)s::float8, %(burst)s::float8) - tokens END
FROM filled
