-- Jobs that have not ended, by type, priority and state; how many of them wait for other jobs, and
-- how many for a time. Parameters: namespace, now. Index: job_standing, which has all of it.
SELECT type, priority, state, count(*), sum(waiting), sum(waiting = 0 AND eligible_at > :now)
FROM job INDEXED BY job_standing
WHERE namespace = :namespace AND state IN ({{eligible}}, {{slot_holding}})
GROUP BY type, priority, state
