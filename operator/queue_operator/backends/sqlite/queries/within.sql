-- Jobs of a namespace. Parameters: namespace, states and types (JSON arrays; an empty one does
-- not filter). Index: job_state.
SELECT * FROM job
WHERE namespace = :namespace
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:types = '[]' OR type IN (SELECT value FROM json_each(:types)))
ORDER BY number
