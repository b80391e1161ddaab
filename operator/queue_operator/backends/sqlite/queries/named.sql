-- Jobs by their ids. Parameters: namespace, ids (JSON array). Index: the unique (namespace, id).
SELECT * FROM job
WHERE namespace = :namespace AND id IN (SELECT value FROM json_each(:ids)) ORDER BY number
