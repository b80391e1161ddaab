-- Jobs that carry all of at least one tag. Parameters: namespace, tags (JSON array), tag_count.
-- Index: the key of job_tag, a range per tag.
SELECT * FROM job
WHERE number IN (
    SELECT number FROM job_tag
    WHERE namespace = :namespace AND tag IN (SELECT value FROM json_each(:tags))
    GROUP BY number HAVING count(*) = :tag_count
)
ORDER BY number
