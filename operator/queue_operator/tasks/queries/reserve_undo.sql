-- One reserved task that never reached the caller waits again. Parameters: task_id, started_at.
UPDATE tasks SET status = 'pending', started_at = NULL
WHERE task_id = :task_id AND status = 'in_progress' AND started_at = :started_at
