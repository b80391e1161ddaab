-- The lanes of a namespace whose jobs carry all of some tags. Parameters: namespace (text), tags
-- (text[]). Index: namespace_name_key, lane_namespace_id_type_id_priority_tags_key. Locks: none.
SELECT id FROM lane
WHERE namespace_id = (SELECT id FROM namespace WHERE name = %(namespace)s)
  AND tags @> %(tags)s::text[]
