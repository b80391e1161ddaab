-- One new task. Parameters: task_id, payload, available_at, enqueued_at.
-- No row changes where the id is taken. Index: the one of UNIQUE (task_id).
INSERT INTO tasks (task_id, status, payload, available_at, enqueued_at)
VALUES (:task_id, 'pending', :payload, :available_at, :enqueued_at)
ON CONFLICT (task_id) DO NOTHING
