-- How large the database is on disk. Parameters: none. Index: none; the server looks at its files.
-- Locks: none.
SELECT pg_database_size(current_database())
