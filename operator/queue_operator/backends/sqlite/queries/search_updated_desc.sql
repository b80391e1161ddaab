-- A page of jobs, last changed first. Parameters: after_at and after_number, the place at which
-- the page before ended; max_rows; those of search_condition.sql. Index: job_updated, from there.
SELECT * FROM job
WHERE (updated_at, number) < (:after_at, :after_number) AND {condition}
ORDER BY updated_at DESC, number DESC LIMIT :max_rows
