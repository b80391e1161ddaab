-- The migrations that were applied, in order.
-- Parameters: none. Index: none, the table is short. Locks: none.
SELECT name, checksum, needs FROM queue_operator.schema_migration ORDER BY name
