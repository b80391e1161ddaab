-- How many jobs are stored, how many have ended well, and how many have more than one event of
-- a kind that each has once at most when nothing fails. Reads the tables whole.
SELECT (SELECT count(*) FROM queue_operator.job),
       (SELECT count(*) FROM queue_operator.job WHERE state IN ({{COMPLETED}})),
       (SELECT coalesce(sum(events - jobs), 0)::bigint
        FROM (
            SELECT count(*) AS events, count(DISTINCT job_no) AS jobs
            FROM queue_operator.job_event CROSS JOIN unnest(job_nos) AS job_no
            GROUP BY event
        ) AS by_event)
