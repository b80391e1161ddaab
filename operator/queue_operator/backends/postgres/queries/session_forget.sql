-- Removes what was kept of workers that were lost. Parameters: max_age_s double precision.
-- Index: none; there are those of some minutes. Locks: the rows that go.
DELETE FROM lost_worker
WHERE lost_at < now() - make_interval(secs => %(max_age_s)s::double precision)
