-- Makes messages of what statements that ended jobs have noted. Gives one row: of how many statements,
-- and the number of the last one.
-- Parameters: after (bigint: up to there all was unfolded), limit (int, in statements).
-- Index: webhook_batch_pkey.
-- Locks: the rows that go, the lowest number first. Who looks at the same time waits, or would read
--   before the messages are there.
-- Traps: it must be on disk before anybody is told: done again, it would give other ids. Dead rows before
--   the place given are not passed by, however long a snapshot keeps them.
WITH taken AS (
    DELETE FROM webhook_batch
    WHERE number = ANY (ARRAY(
        SELECT number FROM webhook_batch WHERE number > %(after)s::bigint
        ORDER BY number LIMIT %(limit)s::int
        FOR UPDATE
    ))
    RETURNING *
), written AS (
    INSERT INTO webhook_message (salt, receiver, created_at, finalized_at, next_at, job_state,
                                 attempt, namespace, job_id, type, url)
    SELECT salt, one.receiver, ended_at, ended_at, ended_at, job_state, one.attempt,
           one.namespace, one.job_id, one.type, one.url
    FROM (SELECT * FROM taken ORDER BY number) AS taken CROSS JOIN LATERAL unnest(
        receivers, attempts, namespaces, job_ids, types, urls
    ) AS one(receiver, attempt, namespace, job_id, type, url)
    RETURNING namespace, state
), counted AS (
    INSERT INTO webhook_count (namespace, state, messages)
    SELECT namespace, state, count(*) FROM written GROUP BY namespace, state
)
SELECT count(*)::int, max(number) FROM taken
