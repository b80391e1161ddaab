-- What those see of jobs who follow them. Parameters: numbers (JSON array). Index: the key of job,
-- and job_tag_by_job, which has the tags. Trap: no payload is read.
SELECT number, namespace, id, type, state, waiting, eligible_at, updated_at, category,
       json_extract(record, '$.job.attempt') AS attempt,
       (SELECT json_group_array(tag) FROM job_tag WHERE job_tag.number = job.number) AS tags
FROM job WHERE number IN (SELECT value FROM json_each(:numbers))
