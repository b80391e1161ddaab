-- Writes what came of tries, where nobody claimed the message since.
-- Parameters, aligned by position: numbers (bigint[]), salts (uuid[]), claims (int[]), states
--   (text[]), after_s (float8[], seconds until they are due), statuses (int[]), errors (text[]). One
--   without status and error is given back, and was no try. Gives one row: how many were kept.
-- Index: the primary key. Locks: the rows that change.
-- Trap: without the list of numbers, all messages of a short table would be read, to be compared.
WITH told AS MATERIALIZED (
    SELECT * FROM unnest(%(numbers)s::bigint[], %(salts)s::uuid[], %(claims)s::int[],
                         %(states)s::text[], %(after_s)s::float8[], %(statuses)s::int[],
                         %(errors)s::text[])
        AS t(number, salt, claim, new_state, after_s, status, error)
), kept AS (
    UPDATE webhook_message
    SET state = new_state, due = new_state = 'PENDING' AND after_s = 0, holder = '',
        next_at = CASE WHEN new_state = 'PENDING' THEN now() + make_interval(secs => after_s) END,
        tries = tries + CASE WHEN tried THEN 1 ELSE 0 END,
        last_at = CASE WHEN tried THEN now() ELSE last_at END,
        last_status = CASE WHEN tried THEN status ELSE last_status END,
        last_error = CASE WHEN tried THEN error ELSE last_error END
    FROM (SELECT *, status IS NOT NULL OR error <> '' OR new_state <> 'PENDING' AS tried
          FROM told) AS told
    WHERE webhook_message.number = ANY (%(numbers)s::bigint[])
      AND webhook_message.number = told.number AND webhook_message.salt = told.salt
      AND webhook_message.claim = told.claim AND holder <> '' AND state = 'PENDING'
    RETURNING namespace, state
), counted AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT namespace, 'PENDING', -count(*) FROM kept WHERE state <> 'PENDING' GROUP BY namespace
    UNION ALL
    SELECT namespace, state, count(*) FROM kept WHERE state <> 'PENDING' GROUP BY namespace, state
)
SELECT count(*)::int FROM kept
