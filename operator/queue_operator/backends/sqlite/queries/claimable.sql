-- Jobs that a demand may get now, oldest first. Parameters: namespace, now, types and tags
-- (JSON arrays; an empty one does not filter), tag_count, max_rows. Index: job_claim, which has
-- all but the tags; those are looked up in job_tag_by_job. What is paused is read by its key.
SELECT * FROM job
WHERE claimable = 1 AND namespace = :namespace AND eligible_at <= :now
  AND (:types = '[]' OR type IN (SELECT value FROM json_each(:types)))
  AND NOT EXISTS (
      SELECT 1 FROM pause WHERE pause.namespace = :namespace AND pause.type IN ('', job.type))
  AND (:tag_count = 0 OR :tag_count = (
      SELECT count(*) FROM job_tag
      WHERE job_tag.number = job.number AND tag IN (SELECT value FROM json_each(:tags))))
ORDER BY place, number LIMIT :max_rows
