-- Jobs of custom resources by uid. Parameters: uids (text[]). Index: job_by_uid.
SELECT found.job_no, u.id FROM unnest(%(uids)s::text[]) AS u(id)
CROSS JOIN LATERAL (
    -- Two clusters never make the same uid.
    SELECT job_no FROM job WHERE job.id = u.id AND job.cluster_uid IS NOT NULL LIMIT 1
) found
