-- Records a migration in the transaction that applies it.
-- Parameters: name, checksum, needs (text). Locks: none that others wait for.
INSERT INTO schema_migration (name, checksum, needs) VALUES (%(name)s, %(checksum)s, %(needs)s)
