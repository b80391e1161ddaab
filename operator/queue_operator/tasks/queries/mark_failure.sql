-- The bad end. Parameters: task_id, error, traceback, finished_at. No row changes where the task
-- is not in progress. Index: the one of UNIQUE (task_id).
UPDATE tasks
SET status = 'failure', error = :error, traceback = :traceback, finished_at = :finished_at
WHERE task_id = :task_id AND status = 'in_progress'
