-- The number of a namespace that is not being removed. Parameters: name.
-- Index: namespace_name_key. Locks: none.
SELECT id FROM namespace WHERE name = %(name)s AND retired_at IS NULL
