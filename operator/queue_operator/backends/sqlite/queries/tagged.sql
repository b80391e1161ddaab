-- Jobs of a namespace that have not ended and carry all of at least one tag.
-- Parameters: namespace, tags (JSON array), tag_count. Index: job_standing, which
-- has no others, and which SQLite would leave for one that spares it the order.
SELECT * FROM job INDEXED BY job_standing
WHERE namespace = :namespace AND state IN ({{eligible}}, {{slot_holding}})
  AND :tag_count = (
      SELECT count(*) FROM job_tag
      WHERE job_tag.number = job.number AND tag IN (SELECT value FROM json_each(:tags)))
ORDER BY number
