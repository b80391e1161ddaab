-- A row if the role owns a table or more of ours. Parameters: role. No index: a few rows of the
-- catalogue.
SELECT FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner
WHERE relnamespace = 'queue_operator'::regnamespace AND rolname = %(role)s LIMIT 1
