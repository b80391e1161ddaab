-- Jobs by state and the sum of their retries. Parameters: namespace. Index: job_count, which has
-- all of it, a range per namespace.
SELECT state, count(*), sum(retries) FROM job WHERE namespace = :namespace GROUP BY state
