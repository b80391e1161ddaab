-- Makes messages PENDING again, due now, as if never tried. Gives one row: how many.
-- Parameters, index and locks: those of {{chosen}}.
WITH {{chosen}}, again AS (
    UPDATE webhook_message
    SET state = 'PENDING', due = true, next_at = now(), tries = 0, last_at = NULL,
        last_status = NULL, last_error = ''
    WHERE number = ANY (ARRAY(SELECT number FROM chosen))
    RETURNING 1
), counted AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT %(namespace)s, state, -count(*) FROM chosen GROUP BY state
    UNION ALL
    SELECT %(namespace)s, 'PENDING', count(*) FROM chosen HAVING count(*) > 0
)
SELECT count(*)::int FROM again
