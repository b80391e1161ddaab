-- Writes what came of tries, where nobody claimed the message since.
-- Parameters, aligned by position: numbers (bigint[], ascending), salts (uuid[]), claims (int[]), states
--   (text[]), after_s (float8[], seconds until they are due), statuses (int[]), errors (text[]). One
--   without status and error is given back, and was no try. Gives one row: how many were kept.
-- Index: the primary key. Locks: the rows that change.
-- Traps: what belongs to a row is looked up by halving the numbers: a join of two batches is planned as a
--   loop over both. Nothing waits until this is on disk: what is lost is told again, under its id.
WITH kept AS (
    UPDATE webhook_message AS message
    SET (state, due, holder, next_at, tries, last_at, last_status, last_error) = (
        SELECT told.state, told.state = 'PENDING' AND told.after_s = 0, '',
               CASE WHEN told.state = 'PENDING'
                    THEN now() + make_interval(secs => told.after_s) END,
               message.tries + told.tried::int,
               CASE WHEN told.tried THEN now() ELSE message.last_at END,
               CASE WHEN told.tried THEN told.status ELSE message.last_status END,
               CASE WHEN told.tried THEN told.error ELSE message.last_error END
        FROM (
            SELECT *, status IS NOT NULL OR error <> '' OR one.state <> 'PENDING' AS tried
            FROM (
                SELECT ((SELECT %(states)s::text[]))[place] AS state,
                       ((SELECT %(after_s)s::float8[]))[place] AS after_s,
                       ((SELECT %(statuses)s::int[]))[place] AS status,
                       ((SELECT %(errors)s::text[]))[place] AS error
                FROM (VALUES (width_bucket(message.number, (SELECT %(numbers)s::bigint[]))))
                     AS found(place)
            ) AS one
        ) AS told
    )
    WHERE number = ANY (%(numbers)s::bigint[])
      AND salt = ((SELECT %(salts)s::uuid[]))[
              width_bucket(number, (SELECT %(numbers)s::bigint[]))]
      AND claim = ((SELECT %(claims)s::int[]))[
              width_bucket(number, (SELECT %(numbers)s::bigint[]))]
      AND holder <> '' AND state = 'PENDING'
    RETURNING namespace, state
), counted AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT namespace, 'PENDING', -count(*) FROM kept WHERE state <> 'PENDING' GROUP BY namespace
    UNION ALL
    SELECT namespace, state, count(*) FROM kept WHERE state <> 'PENDING' GROUP BY namespace, state
)
SELECT count(*)::int, {{soon}} FROM kept
