-- One message. Parameters: number, salt, namespace. Index: the primary key. Locks: none.
SELECT {{columns}} FROM webhook_message
WHERE number = %(number)s::bigint AND salt = %(salt)s::uuid AND namespace = %(namespace)s
