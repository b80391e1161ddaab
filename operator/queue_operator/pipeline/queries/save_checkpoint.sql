-- Parameters: name, generation, database identity, snapshot ('' before the first read).
INSERT INTO queue_operator.pipeline_checkpoint
    (name, generation, system_identifier, snapshot, updated_at)
VALUES (%s, %s, %s, %s, now())
ON CONFLICT (name) DO UPDATE SET
    generation = excluded.generation,
    system_identifier = excluded.system_identifier,
    snapshot = excluded.snapshot,
    updated_at = excluded.updated_at
