-- A worker is lost no more. Parameters: namespace, worker_name. Index: lost_worker_name.
DELETE FROM lost_worker WHERE namespace = :namespace AND worker_name = :worker_name
