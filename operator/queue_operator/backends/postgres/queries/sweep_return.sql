-- Puts back what was taken out of `lease_check` and could not be done, under its old numbers, so
-- that a renewal is still the newer one.
-- Parameters, aligned: kinds (text[]), leases, numbers (bigint[]) and look_ats (timestamptz[]).
-- Index: none. Locks: none.
-- Trap: whose leases they are is not looked up: NULL stands for anybody.
INSERT INTO lease_check (kind, look_at, number, leases)
SELECT kind, look_at, number, array_agg(lease)
FROM unnest(%(kinds)s::text[], %(leases)s::bigint[], %(numbers)s::bigint[],
            %(look_ats)s::timestamptz[]) AS left_over(kind, lease, number, look_at)
GROUP BY kind, look_at, number
