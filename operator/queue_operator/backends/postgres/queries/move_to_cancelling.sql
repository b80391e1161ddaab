-- Asks running jobs to stop, or asks again with force; a cancel that says nothing new changes
-- nothing.
-- Parameters: job_nos (bigint[]); running (bigint[]: those of them that are RUNNING); force; and for
--   all alike reason, error (JSON text), result and content_type, where '' and NULL keep what
--   there is. Index: lease_pkey.
-- Locks: none that `lock.sql` has not taken in this transaction.
-- Traps: values of each job's own would take a join, which without hash joins takes the square of
--   the batch.
WITH asked AS (
    UPDATE lease
    SET state = {{CANCELLING}}, cancel_forced = cancel_forced OR %(force)s,
        -- The time until it is given up runs from the first cancel, or from the forced one.
        cancel_requested_at = now(), changed_at = now(),
        cancel_reason = coalesce(nullif(%(reason)s, ''), cancel_reason),
        transition = transition + CASE WHEN state IN ({{RUNNING}}) THEN 1 ELSE 0 END,
        error = coalesce(%(error)s::jsonb, error),
        failed_at = CASE WHEN %(error)s::jsonb IS NOT NULL THEN now()
            ELSE coalesce(failed_at, CASE WHEN error IS NOT NULL THEN changed_at END) END,
        result = coalesce(%(result)s, result),
        result_content_type = CASE WHEN %(result)s::bytea IS NULL THEN result_content_type
                                   ELSE %(content_type)s END
    WHERE job_no = ANY (%(job_nos)s::bigint[])
      AND (state IN ({{RUNNING}}) OR (%(force)s AND NOT cancel_forced))
    RETURNING job_no, lane_id, lease_version, attempt, mirrored, transition, cancel_reason
), checked AS (
    INSERT INTO lease_check (kind, look_at, leases)
    SELECT 'CANCEL', now(), array_agg((job_no << 16) | (lease_version & 65535))
    FROM asked HAVING count(*) > 0
), fresh AS MATERIALIZED (
    SELECT * FROM asked WHERE job_no = ANY (%(running)s::bigint[])
), rarer AS (
    INSERT INTO transition (job_no, number, event, from_state, to_state, at, reason)
    SELECT job_no, transition, 'CANCEL', {{RUNNING}}, {{CANCELLING}}, now(), cancel_reason
    FROM fresh
), logged AS (
    INSERT INTO job_event (event, from_state, to_state, job_nos, attempts, lane_ids)
    SELECT 'CANCEL', {{RUNNING}}, {{CANCELLING}}, array_agg(job_no), array_agg(attempt),
           array_agg(lane_id)
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
