-- Replaces some counts by their sums. Gives one row: how many.
-- Parameters: limit (int). Index: the primary key. Locks: the rows that go, but for those that
-- another has.
WITH gone AS (
    DELETE FROM webhook_count
    WHERE id = ANY (ARRAY(
        SELECT id FROM webhook_count WHERE id > 0 ORDER BY id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ))
    RETURNING namespace, state, messages
), kept AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT namespace, state, sum(messages) FROM gone
    GROUP BY namespace, state HAVING sum(messages) <> 0
)
SELECT count(*)::int FROM gone
