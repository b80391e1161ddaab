-- One task as it is. Parameter: task_id. Index: the one of UNIQUE (task_id).
SELECT task_id, status, value, error, traceback, enqueued_at, started_at, finished_at
FROM tasks
WHERE task_id = :task_id
