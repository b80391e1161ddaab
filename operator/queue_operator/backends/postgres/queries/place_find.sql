-- Where a job stands: its number and type, and how many eligible jobs of its namespace and type are
-- claimed before it, counted up to a bound; 0 where it does not wait. No row: there is no such job.
-- Parameters: namespace_id, id, bound. Locks: none.
-- Index: job_namespace_id_id_key, ready_pkey, lane_namespace_id_type_id_priority_tags_key; then
--   ready_claim, a range per lane, and ready_stage, a range: what nobody has made due yet.
-- Traps: the order of a row that is not there is NULL, before which nothing lies. The type is that
--   of the job's first lane: a retry may change its priority, nothing else.
WITH asked AS MATERIALIZED (
    SELECT job.job_no, lane.namespace_id, lane.type_id,
           (SELECT order_time FROM ready WHERE ready.job_no = job.job_no) AS order_time
    FROM job
    JOIN lane ON lane.id = job.lane_id
    WHERE job.namespace_id = %(namespace_id)s AND job.id = %(id)s
), beside AS MATERIALIZED (
    SELECT lane.id, asked.order_time, asked.job_no
    FROM asked
    CROSS JOIN LATERAL (
        SELECT id FROM lane
        WHERE lane.namespace_id = asked.namespace_id AND lane.type_id = asked.type_id
        OFFSET 0
    ) lane
), ahead AS (
    SELECT FROM beside
    CROSS JOIN LATERAL (
        SELECT FROM ready
        WHERE due AND ready.lane_id = beside.id
          AND (ready.order_time, ready.job_no) < (beside.order_time, beside.job_no)
        ORDER BY ready.order_time, ready.job_no LIMIT %(bound)s
    ) due
    UNION ALL
    SELECT FROM asked
    CROSS JOIN LATERAL (
        SELECT FROM ready
        WHERE NOT due AND NOT blocked AND eligible_at <= now()
          AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
          AND ready.lane_id = ANY (ARRAY(SELECT id FROM beside))
          AND (ready.order_time, ready.job_no) < (asked.order_time, asked.job_no)
        OFFSET 0
    ) overdue
)
SELECT asked.job_no, job_type.name,
       (SELECT count(*)::int FROM (SELECT FROM ahead LIMIT %(bound)s) counted)
FROM asked
JOIN job_type ON job_type.id = asked.type_id
