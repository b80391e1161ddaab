-- Part of each statement that ends jobs: what is told of those with a callback, in one row for each
-- state, which `webhook_unfold.sql` makes messages of. `ended` has, by state, the numbers of the jobs
-- (nos, ascending), and aligned with them their attempts.
-- Index: callback_pkey, asked once for all jobs of a state; where an older release stored the callback
-- also job_pkey and lane_pkey.
-- Trap: no join of two batches, which could be planned as a loop over both.
heard AS (
    INSERT INTO webhook_batch (job_state, receivers, attempts, namespaces, job_ids, types, urls)
    SELECT ended.state, array_agg(coalesce(told.receiver, hashtextextended(told.url, 0))),
           array_agg(ended.attempts[width_bucket(told.job_no, ended.nos)]),
           array_agg(coalesce(told.namespace, (
               SELECT namespace.name FROM job JOIN lane ON lane.id = job.lane_id
               JOIN namespace ON namespace.id = lane.namespace_id WHERE job.job_no = told.job_no))),
           array_agg(coalesce(told.job_id, (SELECT id FROM job WHERE job.job_no = told.job_no))),
           array_agg(coalesce(told.type, (
               SELECT job_type.name FROM job JOIN lane ON lane.id = job.lane_id
               JOIN job_type ON job_type.id = lane.type_id WHERE job.job_no = told.job_no))),
           array_agg(told.url)
    FROM ended CROSS JOIN LATERAL (
        SELECT * FROM callback WHERE callback.job_no = ANY (ended.nos)
    ) told
    GROUP BY ended.state
)
