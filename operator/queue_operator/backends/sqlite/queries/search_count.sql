-- How many jobs match, counted up to a bound. Parameters: bound; those of search_condition.sql.
-- Index: job_updated or job_created, a range of either.
SELECT count(*) FROM (SELECT 1 FROM job WHERE {condition} LIMIT :bound)
