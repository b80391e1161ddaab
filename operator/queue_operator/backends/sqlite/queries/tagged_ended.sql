-- Jobs that have ended and carry all of at least one tag, beyond a number, with no more of each than
-- is needed to name or to delete it.
-- Parameters: namespace, tags (JSON array), tag_count, after, max_rows.
-- Index: the key of job_tag, a range of one tag, and job_tag_by_job for the others.
SELECT job.number, job.id
FROM job_tag AS job_of_tag CROSS JOIN job ON job.number = job_of_tag.number
WHERE job_of_tag.namespace = :namespace AND job_of_tag.tag = json_extract(:tags, '$[0]')
  AND job_of_tag.number > :after
  AND :tag_count = (
      SELECT count(*) FROM job_tag
      WHERE job_tag.number = job_of_tag.number AND tag IN (SELECT value FROM json_each(:tags)))
  AND job.state IN ({{terminal}})
ORDER BY job_of_tag.number LIMIT :max_rows
