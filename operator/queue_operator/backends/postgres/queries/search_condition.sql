-- Part of the statements of a search: what must hold of the row `moving` beside its lane and its
-- place in the order. NULL does not filter.
-- Parameters: states, categories (text[]), failed (bool), code, created_after, created_before,
--   changed_after, changed_before (exclusive); refined, pending, delayed, scheduled, permanent and
--   used_up (bool): whether the phases of one state are told apart, and which are wanted. Words:
--   category and code, of the error, wherever the table has them.
-- Traps: now() may lie before a submission that the transaction sees; a volatile clock would
--   cost the planner its knowledge of the order.
(%(states)s::text[] IS NULL OR moving.state = ANY (%(states)s::text[]))
    AND moving.created_at > %(created_after)s AND moving.created_at < %(created_before)s
    AND moving.changed_at > %(changed_after)s AND moving.changed_at < %(changed_before)s
    AND (NOT %(refined)s::bool OR CASE
        WHEN moving.state IN ({{DEAD_LETTER}}) THEN
            CASE WHEN {category} IS NOT DISTINCT FROM 'PERMANENT' THEN %(permanent)s::bool
                 ELSE %(used_up)s::bool END
        WHEN moving.state NOT IN ({{INITIAL_PENDING}}) THEN true
        WHEN moving.blocked THEN %(pending)s::bool
        WHEN moving.eligible_at > statement_timestamp() THEN %(delayed)s::bool
        ELSE %(scheduled)s::bool END)
    AND (%(failed)s::bool IS NULL OR ({category} IS NOT NULL) = %(failed)s::bool)
    AND (%(categories)s::text[] IS NULL OR {category} = ANY (%(categories)s::text[]))
    AND (%(code)s::text IS NULL OR {code} = %(code)s::text)
