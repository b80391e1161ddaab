-- Completed jobs that ended more than ttl_s ago.
-- Parameters: ttl_s, namespace_id (NULL: all), max_rows. Index: final_completed.
SELECT final.job_no FROM final
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = final.job_no LIMIT 1) job
WHERE final.state IN ({{completed}})
  AND final.finalized_at < now() - make_interval(secs => %(ttl_s)s)
  AND (%(namespace_id)s::int IS NULL OR job.namespace_id = %(namespace_id)s)
ORDER BY final.finalized_at LIMIT %(max_rows)s
