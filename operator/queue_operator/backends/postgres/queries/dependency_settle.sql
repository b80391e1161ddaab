-- Writes the parents' outcomes into edges, lets go those children that need not wait any longer,
-- and hands results down. Gives the lanes of the children let go, but for those that are suspended.
-- Parameters: children (bigint[]); arrays of equal length: parents (bigint), outcomes (NULL where
--   the parent runs again); released (bigint[]); arrays of equal length: heirs and givers (bigint).
-- Index: dependency_pkey, suspension_pkey, ready_pkey, final_pkey.
-- Locks: the edges; the children's and the givers' rows are locked already.
-- Traps: a job becomes eligible when its wait ends, not when it was submitted. That may have
--   been after this transaction began: it then waited for the one that submitted the job.
--   A join of the edges, or of the children, with what is given would, without hash joins, take
--   the square of both, or read all that wait.
WITH written AS (
    UPDATE dependency
    SET outcome = ((SELECT %(outcomes)s::text[]))[
        array_position((SELECT %(parents)s::bigint[]), parent_no)
    ]
    WHERE child_no = ANY (%(children)s::bigint[]) AND parent_no = ANY (%(parents)s::bigint[])
), handed AS (
    INSERT INTO parent_result (job_no, result, content_type)
    SELECT g.heir, giver.result, coalesce(giver.result_content_type, '')
    FROM unnest(%(heirs)s::bigint[], %(givers)s::bigint[]) AS g(heir, giver_no)
    CROSS JOIN LATERAL (SELECT * FROM final WHERE final.job_no = g.giver_no LIMIT 1) giver
    ON CONFLICT (job_no) DO NOTHING
), held AS MATERIALIZED (
    SELECT job_no FROM unnest(%(released)s::bigint[]) AS g(job_no)
    CROSS JOIN LATERAL (
        SELECT FROM suspension WHERE suspension.job_no = g.job_no AND is_on LIMIT 1
    ) AS suspended
), let_go AS (
    UPDATE ready
    SET blocked = CASE WHEN (job_no IN (SELECT job_no FROM held)) IS NOT TRUE THEN false END,
        due = eligible_at <= clock_timestamp()
            AND (job_no IN (SELECT job_no FROM held)) IS NOT TRUE,
        eligible_at = greatest(eligible_at, now())
    WHERE job_no = ANY (%(released)s::bigint[]) AND blocked
    RETURNING job_no, lane_id, order_time, due, eligible_at, blocked
), waiting AS (
    SELECT * FROM let_go WHERE NOT blocked
), {{arrived}}, counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
    SELECT lane_id, {{INITIAL_PENDING}}, 0, 0, -count(*) FROM let_go GROUP BY lane_id
)
SELECT DISTINCT lane_id FROM waiting
