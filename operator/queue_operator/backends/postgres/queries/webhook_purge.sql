-- Deletes messages. Gives one row: how many.
-- Parameters, index and locks: those of {{chosen}}.
WITH {{chosen}}, gone AS (
    DELETE FROM webhook_message WHERE number = ANY (ARRAY(SELECT number FROM chosen))
    RETURNING 1
), counted AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT %(namespace)s, state, -count(*) FROM chosen GROUP BY state
)
SELECT count(*)::int FROM gone
