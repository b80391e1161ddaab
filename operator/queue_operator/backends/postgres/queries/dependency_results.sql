-- What the last parents of some jobs gave. Parameters: children (bigint[]).
-- Index: parent_result_pkey. Locks: none.
SELECT given.job_no, given.result, given.content_type
FROM unnest(%(children)s::bigint[]) AS g(job_no)
CROSS JOIN LATERAL (
    SELECT * FROM parent_result WHERE parent_result.job_no = g.job_no LIMIT 1
) given
