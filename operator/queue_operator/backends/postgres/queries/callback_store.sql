-- Notes who is to be told of the ends of some new jobs. Parameters, aligned by position: job_nos
-- (bigint[]), urls (text[]). Index: none. Locks: the new rows.
INSERT INTO callback (job_no, url)
SELECT * FROM unnest(%(job_nos)s::bigint[], %(urls)s::text[])
