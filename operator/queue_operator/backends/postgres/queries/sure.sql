-- Part of others: whether numbers that were looked up still mean what they did.
-- Parameters: sure_until: when the lanes may begin to be removed; history: where they were looked up.
-- Index, locks: none.
-- Trap: a standby that took the place of a primary may have missed its last moments. It gives the
--   numbers of lanes and namespaces that were made in these to others.
(now() < %(sure_until)s::timestamptz AND {{history}} = %(history)s)
