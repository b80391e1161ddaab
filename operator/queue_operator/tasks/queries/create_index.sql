-- What reserve reads: the waiting tasks in their order. Partial, so that ended tasks cost it
-- nothing, however many are kept.
CREATE INDEX IF NOT EXISTS tasks_pending ON tasks (available_at, enqueued_at, seq)
WHERE status = 'pending'
