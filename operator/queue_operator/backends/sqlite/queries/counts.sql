-- Jobs by state and the sum of their retries, of those that carry all tags. Parameters:
-- namespace, tags (JSON array), tag_count. Index: job_state, or the key of job_tag.
SELECT state, count(*), sum(retries) FROM job
WHERE namespace = :namespace AND (:tag_count = 0 OR number IN (
    SELECT number FROM job_tag
    WHERE namespace = :namespace AND tag IN (SELECT value FROM json_each(:tags))
    GROUP BY number HAVING count(*) = :tag_count))
GROUP BY state
