-- The good end. Parameters: task_id, value, finished_at. No row changes where the task is not
-- in progress. Index: the one of UNIQUE (task_id).
UPDATE tasks SET status = 'success', value = :value, finished_at = :finished_at
WHERE task_id = :task_id AND status = 'in_progress'
