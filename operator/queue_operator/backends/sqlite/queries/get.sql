-- One job. Parameters: namespace, id. Index: the unique (namespace, id).
SELECT * FROM job WHERE namespace = :namespace AND id = :id
