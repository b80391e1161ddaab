-- To whom some tokens were given.
-- Parameters, aligned by position: job_nos (bigint[]: a token begins with its job's number), tokens
--   (uuid[]). Gives the place and the assignee; tokens that no job has, or had, are left out.
-- Index: the primary keys of lease, ready, final and attempt. Locks: none: it never changes.
SELECT g.n::int, given.assignee_id
FROM unnest(%(job_nos)s::bigint[], %(tokens)s::uuid[]) WITH ORDINALITY AS g(job_no, token, n)
CROSS JOIN LATERAL (
    SELECT assignee_id FROM lease WHERE lease.job_no = g.job_no AND lease.token = g.token
    UNION ALL
    SELECT assignee_id FROM ready WHERE ready.job_no = g.job_no AND ready.token = g.token
    UNION ALL
    SELECT assignee_id FROM final WHERE final.job_no = g.job_no AND final.token = g.token
    UNION ALL
    SELECT assignee_id FROM attempt WHERE attempt.job_no = g.job_no AND attempt.token = g.token
    LIMIT 1
) given
