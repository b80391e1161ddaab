-- Ends a pause; gives a row if there was one. Parameters: namespace, type. Index: pause_pkey.
-- Locks: the row.
DELETE FROM pause WHERE namespace = %(namespace)s AND type = %(type)s
RETURNING namespace
