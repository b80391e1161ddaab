-- Notes that some new jobs are suspended; `submit.sql` has made them wait.
-- Parameters: job_nos (bigint[]). Index: none. Locks: the new rows.
INSERT INTO suspension (job_no, is_on) SELECT unnest(%(job_nos)s::bigint[]), true
