-- Writes the edges of new jobs, marks the parents, and hands the results of those that are
-- COMPLETED down to new jobs.
-- Parameters: arrays of equal length, one entry per edge: parents, children, places (int),
--   parent_ids, outcomes (NULL: has not ended); marks (bigint[]): parents whose outcome may
--   still come or change; arrays of equal length: heirs and givers (bigint[]).
-- Index: the primary keys. Locks: the parents' rows, locked by `lock.sql` before.
-- Traps: from the mark on, a parent's end takes the slow path, which looks for children.
WITH linked AS (
    INSERT INTO dependency (parent_no, child_no, place, parent_id, outcome)
    SELECT * FROM unnest(%(parents)s::bigint[], %(children)s::bigint[], %(places)s::int[],
                         %(parent_ids)s::text[], %(outcomes)s::text[])
), waiting AS (
    UPDATE ready SET has_children = true
    WHERE job_no = ANY (%(marks)s::bigint[]) AND NOT has_children
), running AS (
    UPDATE lease SET has_children = true
    WHERE job_no = ANY (%(marks)s::bigint[]) AND NOT has_children
), ended AS (
    UPDATE final SET has_children = true
    WHERE job_no = ANY (%(marks)s::bigint[]) AND NOT has_children
)
INSERT INTO parent_result (job_no, result, content_type)
SELECT g.heir, giver.result, coalesce(giver.result_content_type, '')
FROM unnest(%(heirs)s::bigint[], %(givers)s::bigint[]) AS g(heir, giver_no)
CROSS JOIN LATERAL (SELECT * FROM final WHERE final.job_no = g.giver_no LIMIT 1) giver
