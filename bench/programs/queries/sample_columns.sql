-- (table, column) of what can be inserted into the product's tables that name a job by number.
SELECT columns.table_name::text, columns.column_name::text
FROM information_schema.columns
JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = 'queue_operator' AND table_type = 'BASE TABLE'
  AND is_generated = 'NEVER' AND is_identity = 'NO'
  AND table_name IN (
      SELECT table_name FROM information_schema.columns
      WHERE table_schema = 'queue_operator' AND column_name = 'job_no'
  )
ORDER BY table_name, ordinal_position
