-- Keeps that a worker was lost. Parameters: session_id, namespace, worker_name, lost_at, record.
INSERT INTO lost_worker VALUES (:session_id, :namespace, :worker_name, :lost_at, :record)
ON CONFLICT (session_id) DO UPDATE
SET namespace = excluded.namespace, worker_name = excluded.worker_name,
    lost_at = excluded.lost_at, record = excluded.record
