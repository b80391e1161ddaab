-- How some jobs stand, as whoever submits them, or submits them again, is told.
-- Parameters: job_nos (bigint[]). Gives the number, when it was created and when it may run,
--   whether it waits for others, its state, and the category of its error.
-- Index: the primary keys. Locks: none. Traps: one statement, so one snapshot: a job is never
--   missed while it moves.
SELECT w.job_no, m.created_at, m.eligible_at, m.blocked, m.state, m.error ->> 'category'
FROM unnest(%(job_nos)s::bigint[]) AS w(job_no)
CROSS JOIN LATERAL (
    SELECT created_at, eligible_at, blocked IS TRUE AS blocked, state, error
    FROM ready WHERE ready.job_no = w.job_no
    UNION ALL
    SELECT created_at, eligible_at, false, state, error
    FROM lease WHERE lease.job_no = w.job_no
    UNION ALL
    SELECT created_at, eligible_at, false, state, error
    FROM final WHERE final.job_no = w.job_no
    LIMIT 1
) m
