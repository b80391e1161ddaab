-- Lost workers of a namespace. Parameters: namespace. Index: lost_worker_name.
SELECT record FROM lost_worker WHERE namespace = :namespace
