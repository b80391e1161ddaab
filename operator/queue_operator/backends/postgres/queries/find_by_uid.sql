-- Jobs of custom resources by uid. Parameters: uids (text[]). Index: job_by_uid.
SELECT job.job_no, job.id FROM unnest(%(uids)s::text[]) AS u(id)
JOIN job ON job.id = u.id AND job.cluster_uid IS NOT NULL
