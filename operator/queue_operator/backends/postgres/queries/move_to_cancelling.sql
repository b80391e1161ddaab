-- Asks running jobs to stop, or asks again with more force.
-- Parameters: arrays of equal length: job_nos, errors (JSON text), results, content_types,
--   NULL keeping the old one, reasons ('' likewise); force. Index: lease_pkey.
-- Locks: none that `lock.sql` has not taken in this transaction.
WITH given AS MATERIALIZED (
    SELECT held.before, g.*
    FROM unnest(%(job_nos)s::bigint[], %(errors)s::text[], %(results)s::bytea[],
                %(content_types)s::text[], %(reasons)s::text[])
        AS g(job_no, new_error, new_result, content_type, reason)
    CROSS JOIN LATERAL (
        -- A cancel that says nothing new changes nothing.
        SELECT state AS before FROM lease
        WHERE lease.job_no = g.job_no
          AND (state IN ({{RUNNING}}) OR (%(force)s AND NOT cancel_forced))
        LIMIT 1
    ) held
), asked AS (
    UPDATE lease
    SET state = {{CANCELLING}}, cancel_forced = cancel_forced OR %(force)s,
        -- The time until it is given up runs from the first cancel, or from the forced one.
        cancel_requested_at = now(), changed_at = now(),
        cancel_reason = coalesce(nullif(reason, ''), cancel_reason),
        transition = transition + CASE WHEN state IN ({{RUNNING}}) THEN 1 ELSE 0 END,
        error = coalesce(new_error::jsonb, error), result = coalesce(new_result, result),
        result_content_type = CASE WHEN new_result IS NULL THEN result_content_type
                                   ELSE content_type END
    FROM given
    WHERE lease.job_no = given.job_no AND lease.job_no = ANY (%(job_nos)s::bigint[])
    RETURNING lease.job_no, lease.lane_id, lease.attempt, lease.mirrored, lease.transition,
              lease.cancel_reason, given.before
), fresh AS MATERIALIZED (
    SELECT * FROM asked WHERE before IN ({{RUNNING}})
), rarer AS (
    INSERT INTO transition (job_no, number, event, from_state, to_state, at, reason)
    SELECT job_no, transition, 'CANCEL', {{RUNNING}}, {{CANCELLING}}, now(), cancel_reason
    FROM fresh
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts)
    SELECT 'CANCEL', {{RUNNING}}, {{CANCELLING}}, array_agg(job_no), array_agg(attempt)
    FROM fresh HAVING count(*) > 0
), counted AS (
    INSERT INTO count_delta (lane_id, state, jobs, retries)
    SELECT lane_id, {{RUNNING}}, -count(*), 0 FROM fresh GROUP BY lane_id
    UNION ALL
    SELECT lane_id, {{CANCELLING}}, count(*), 0 FROM fresh GROUP BY lane_id
), told AS (
    INSERT INTO mirror_outbox (job_no) SELECT job_no FROM fresh WHERE mirrored
)
SELECT count(*) FROM asked
