-- (namespace, id) of attached, unfinished jobs of a cluster. Parameters: cluster_uid text.
-- Starts from the jobs that are unfinished, because finished ones pile up: reads `ready` (by
-- ready_mirrored) once and the leases that {{standing}} names (by lease_pkey), then job's and
-- detached's primary keys. Meant for about
-- once a minute. One snapshot: a job that moves between the two tables meanwhile is in exactly one.
-- Traps: joined without MATERIALIZED and LATERAL, the two are read anew for every job of a
-- resource; without OFFSET 0 all of `detached` is read and hashed.
WITH unfinished AS MATERIALIZED (
    SELECT job_no FROM ready WHERE mirrored
    UNION ALL
    SELECT job_no FROM lease
    WHERE mirrored AND job_no = ANY (ARRAY(
        SELECT DISTINCT unnest(leases) >> 16 FROM ({{standing}}) AS standing))
)
SELECT namespace.name, job.id
FROM unfinished
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = unfinished.job_no LIMIT 1) AS job
JOIN namespace ON namespace.id = job.namespace_id
WHERE job.cluster_uid = %(cluster_uid)s
  AND NOT EXISTS (SELECT FROM detached WHERE detached.job_no = job.job_no OFFSET 0)
ORDER BY namespace.name, job.id
