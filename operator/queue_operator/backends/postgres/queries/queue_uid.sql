-- What tells this database from every other: the cluster of servers it lives on, and its number
-- there. A standby that is promoted has the same. Parameters: none. Index: pg_database by name.
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' ||
       (SELECT oid FROM pg_database WHERE datname = current_database())::text
