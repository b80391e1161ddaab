-- Notes what is told of ends that a release has written which knew of no messages: the rest is as if
-- the end had written it. Gives one row: how many rows of the log were looked at.
-- Parameters: limit (int, in rows of the log). Index: job_event_untold, which is empty but for the length of an
--   upgrade; of each end of a job callback_pkey, job_pkey, lane_pkey, final_pkey and webhook_by_job.
-- Locks: the rows of the log; where another is at it, this finds fewer.
-- Trap: a release that does write messages, and does not say so in the log yet, leaves rows here too.
--   Whoever looks has unfolded first, so that few rows of webhook_batch are compared.
WITH found AS MATERIALIZED (
    SELECT seq, at, to_state, job_nos, attempts FROM job_event
    WHERE untold AND to_state IN ({{terminal}}) AND seq > 0
    ORDER BY seq LIMIT %(limit)s::int
    FOR UPDATE SKIP LOCKED
), told AS MATERIALIZED (
    SELECT found.at, found.to_state AS state,
           coalesce((SELECT attempt FROM final
                     WHERE final.job_no = one.job_no AND final.finalized_at = found.at),
                    one.attempt) AS attempt,
           coalesce(of.receiver, hashtextextended(of.url, 0)) AS receiver, of.url,
           coalesce(of.namespace, (
               SELECT namespace.name FROM job JOIN lane ON lane.id = job.lane_id
               JOIN namespace ON namespace.id = lane.namespace_id
               WHERE job.job_no = one.job_no)) AS namespace,
           coalesce(of.job_id, (SELECT id FROM job WHERE job.job_no = one.job_no)) AS job_id,
           coalesce(of.type, (
               SELECT job_type.name FROM job JOIN lane ON lane.id = job.lane_id
               JOIN job_type ON job_type.id = lane.type_id
               WHERE job.job_no = one.job_no)) AS type
    FROM found CROSS JOIN LATERAL unnest(found.job_nos, found.attempts) AS one(job_no, attempt)
    CROSS JOIN LATERAL (SELECT * FROM callback WHERE callback.job_no = one.job_no LIMIT 1) AS of
), missing AS MATERIALIZED (
    SELECT * FROM told
    WHERE job_id IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM webhook_message
          WHERE webhook_message.job_id = told.job_id AND webhook_message.namespace = told.namespace
            AND webhook_message.finalized_at = told.at)
      AND NOT EXISTS (
          SELECT FROM webhook_batch
          WHERE number > 0 AND ended_at = told.at AND told.job_id = ANY (job_ids))
), noted AS (
    INSERT INTO webhook_batch (ended_at, job_state, receivers, attempts, namespaces, job_ids, types,
                               urls)
    SELECT at, state, array_agg(receiver), array_agg(attempt), array_agg(namespace),
           array_agg(job_id), array_agg(type), array_agg(url)
    FROM missing GROUP BY at, state
), seen AS (
    UPDATE job_event SET untold = NULL WHERE seq = ANY (ARRAY(SELECT seq FROM found))
)
SELECT count(*)::int FROM found
