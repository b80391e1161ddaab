-- One found task becomes the caller's. Parameters: started_at, seq. Index: the primary key.
UPDATE tasks SET status = 'in_progress', started_at = :started_at
WHERE seq = :seq AND status = 'pending'
