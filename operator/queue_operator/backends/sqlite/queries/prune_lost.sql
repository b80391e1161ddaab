-- Removes what was kept of workers that were lost before a time. Parameters: since.
-- No index: there are few.
DELETE FROM lost_worker WHERE lost_at < :since
