-- Notes which job spawned some new ones. Parameters, aligned: children (bigint[]), parents
-- (text[]), depths (int[]). Index: none. Locks: the new rows.
INSERT INTO spawned (child_no, parent_id, depth)
SELECT * FROM unnest(%(children)s::bigint[], %(parents)s::text[], %(depths)s::int[])
