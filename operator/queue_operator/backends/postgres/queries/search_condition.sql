-- Part of the statements of a search: what must hold of the row `moving` beside its lane and its
-- place in the order. NULL does not filter.
-- Parameters: states, categories (text[]), delayed, waiting, permanent, failed (bool), code,
--   created_after, created_before, changed_after, changed_before (exclusive). Words: category and
--   code, of the error, wherever the table has them.
-- Traps: now() may lie before a submission that the transaction sees; a volatile clock would
--   cost the planner its knowledge of the order.
(%(states)s::text[] IS NULL OR moving.state = ANY (%(states)s::text[]))
    AND moving.created_at > %(created_after)s AND moving.created_at < %(created_before)s
    AND moving.changed_at > %(changed_after)s AND moving.changed_at < %(changed_before)s
    AND (%(delayed)s::bool IS NULL
         OR (moving.eligible_at > statement_timestamp()) = %(delayed)s::bool)
    AND (%(waiting)s::bool IS NULL OR moving.blocked = %(waiting)s::bool)
    AND (%(failed)s::bool IS NULL OR ({category} IS NOT NULL) = %(failed)s::bool)
    AND (%(permanent)s::bool IS NULL
         OR ({category} IS NOT DISTINCT FROM 'PERMANENT') = %(permanent)s::bool)
    AND (%(categories)s::text[] IS NULL OR {category} = ANY (%(categories)s::text[]))
    AND (%(code)s::text IS NULL OR {code} = %(code)s::text)
