-- Takes tokens from a bucket, or gives how many are lacking. `backends.tokens` says the rules.
-- Parameters: name; amount (below 0: they are given back), rate_per_s and burst (float8).
-- Index: token_bucket_pkey. Locks: the bucket, for as long as the statement takes.
-- Trap: whoever had to wait for the bucket began before it was filled: hence the clock.
WITH taken AS (
    INSERT INTO token_bucket AS stored (name, tokens, filled_at)
    VALUES (%(name)s, %(burst)s::float8 - %(amount)s::float8, clock_timestamp())
    ON CONFLICT (name) DO UPDATE
    SET tokens = least(stored.tokens + greatest(extract(epoch FROM
                       clock_timestamp() - stored.filled_at)::float8, 0) * %(rate_per_s)s::float8,
                       %(burst)s::float8) - %(amount)s::float8,
        filled_at = clock_timestamp()
    WHERE %(amount)s::float8 < 0
       OR least(stored.tokens + greatest(extract(epoch FROM
                clock_timestamp() - stored.filled_at)::float8, 0) * %(rate_per_s)s::float8,
                %(burst)s::float8) >= least(%(amount)s::float8, %(burst)s::float8)
    RETURNING 1
)
SELECT EXISTS (SELECT FROM taken),
       (SELECT least(%(amount)s::float8, %(burst)s::float8)
               - least(tokens + greatest(extract(epoch FROM clock_timestamp() - filled_at)::float8,
                                         0) * %(rate_per_s)s::float8, %(burst)s::float8)
        FROM token_bucket WHERE name = %(name)s)
