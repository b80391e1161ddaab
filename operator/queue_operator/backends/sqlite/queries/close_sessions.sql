-- Removes a session. Parameters: id, replica (NULL: whichever has it open).
-- One that was ended stays: it must not be opened again. Index: the primary key.
DELETE FROM session
WHERE session_id = :id
  AND NOT record ->> '$.order.ended'
  AND (:replica IS NULL OR record ->> '$.replica' = :replica)
