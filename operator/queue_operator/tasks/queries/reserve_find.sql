-- The tasks to reserve, in order. Parameters: now, max_items. Index: tasks_pending.
-- Runs inside BEGIN IMMEDIATE, so nobody takes them before reserve_take.
-- The status is a literal: with a parameter SQLite cannot use the partial index.
SELECT seq, task_id, payload, available_at, enqueued_at
FROM tasks
WHERE status = 'pending' AND available_at <= :now
ORDER BY available_at, enqueued_at, seq
LIMIT :max_items
