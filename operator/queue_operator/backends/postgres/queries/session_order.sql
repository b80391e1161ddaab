-- Gives a session an order. Parameters: session_id, capacity, tags, drain, ended.
-- Index: worker_session's primary key. Locks: the one row.
UPDATE worker_session
SET wanted_capacity = %(capacity)s::integer,
    wanted_tags = %(tags)s::text[],
    wanted_drain = %(drain)s::boolean,
    ended = %(ended)s::boolean,
    shown = true,
    order_number = order_number + 1
WHERE session_id = %(session_id)s
  AND NOT ended
  AND (NOT shown
       OR (wanted_capacity, wanted_tags, wanted_drain, ended)
          IS DISTINCT FROM
          (%(capacity)s::integer, %(tags)s::text[], %(drain)s::boolean, %(ended)s::boolean))
