-- Parameters: name.
SELECT generation, system_identifier, snapshot
FROM queue_operator.pipeline_checkpoint
WHERE name = %s
