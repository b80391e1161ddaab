-- How many jobs are stored, how many have ended well, and how many have an event twice.
SELECT (SELECT count(*) FROM job),
       (SELECT count(*) FROM job WHERE state IN ({{COMPLETED}})),
       (SELECT coalesce(sum(events - jobs), 0)::bigint
        FROM (
            SELECT count(*) AS events, count(DISTINCT job_no) AS jobs
            FROM job_event CROSS JOIN unnest(job_nos) AS job_no GROUP BY event
        ) AS by_event)
