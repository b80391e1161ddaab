-- Asks running jobs to stop, or asks again with more force.
-- Parameters: job_nos (bigint[]), force, reason. Index: lease_pkey.
-- Locks: none that `lock.sql` has not taken in this transaction.
WITH asked AS (
    UPDATE lease
    SET state = {{CANCELLING}}, cancel_forced = cancel_forced OR %(force)s,
        -- The time until it is given up runs from the forced cancel, or from the first.
        cancel_requested_at = CASE WHEN cancel_forced OR NOT %(force)s
                                   THEN coalesce(cancel_requested_at, now()) ELSE now() END,
        cancel_reason = coalesce(nullif(%(reason)s, ''), cancel_reason), changed_at = now(),
        transition = transition + CASE WHEN state IN ({{RUNNING}}) THEN 1 ELSE 0 END
    FROM (SELECT job_no, state AS before FROM lease
          WHERE job_no = ANY (%(job_nos)s::bigint[])) old
    WHERE lease.job_no = old.job_no
    RETURNING lease.job_no, lease.lane_id, lease.attempt, lease.mirrored, old.before
), fresh AS MATERIALIZED (
    SELECT * FROM asked WHERE before IN ({{RUNNING}})
), logged AS (
    INSERT INTO job_event (event, job_nos, from_states, to_states, attempts)
    SELECT 'CANCEL', array_agg(job_no), array_agg(before), array_agg({{CANCELLING}}::text),
           array_agg(attempt)
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
