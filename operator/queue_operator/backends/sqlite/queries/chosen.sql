-- Jobs that carry all tags (unless there are none), and those with the ids. Parameters:
-- namespace, tags and ids (JSON arrays), tag_count. Index: the keys of job_tag and of job's ids.
SELECT * FROM job WHERE number IN (
    SELECT number FROM job
    WHERE namespace = :namespace AND id IN (SELECT value FROM json_each(:ids))
    UNION
    SELECT number FROM job_tag
    WHERE namespace = :namespace AND tag IN (SELECT value FROM json_each(:tags))
    GROUP BY number HAVING count(*) = :tag_count
) ORDER BY number
