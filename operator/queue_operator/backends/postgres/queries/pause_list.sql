-- What is paused. Parameters: namespace and type; NULL does not filter, and with a type, those are
-- left out that are for another one. Index: pause_pkey; the table is short. Locks: none.
SELECT namespace, type, reason, paused_by, since
FROM pause
WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s::text)
  AND (%(type)s::text IS NULL OR type IN ('', %(type)s::text))
