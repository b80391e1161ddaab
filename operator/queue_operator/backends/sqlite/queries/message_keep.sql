-- Keeps a message, in the place of the one with its number. Parameters: the columns.
INSERT INTO message (number, namespace, job_id, state, receiver, next_at, last_at, held, record)
VALUES (:number, :namespace, :job_id, :state, :receiver, :next_at, :last_at, :held, :record)
ON CONFLICT (number) DO UPDATE SET
    state = :state, next_at = :next_at, last_at = :last_at, held = :held, record = :record
