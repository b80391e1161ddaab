-- A page of jobs, oldest first. Parameters: after_at and after_number, the place at which the
-- page before ended; max_rows; those of search_condition.sql. Index: job_created, from there on.
SELECT * FROM job
WHERE (created_at, number) > (:after_at, :after_number) AND {condition}
ORDER BY created_at, number LIMIT :max_rows
