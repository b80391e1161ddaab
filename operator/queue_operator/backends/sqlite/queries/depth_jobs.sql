-- Jobs by namespace, type and state. No parameters. Index: job_count, which has all of it.
SELECT namespace, type, state, count(*) FROM job GROUP BY namespace, type, state
