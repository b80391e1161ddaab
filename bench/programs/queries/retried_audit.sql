-- How many jobs are stored, how many have ended well, and how often more than that one ended well by
-- the event log. Unlike `product_audit.sql` it allows for jobs that fail first. Reads tables whole.
SELECT (SELECT count(*) FROM queue_operator.job),
       (SELECT count(*) FROM queue_operator.final WHERE state IN ({{COMPLETED}})),
       (SELECT coalesce(sum(cardinality(job_nos)), 0)::bigint
        FROM queue_operator.job_event WHERE event = 'COMPLETE')
       - (SELECT count(*) FROM queue_operator.final WHERE state IN ({{COMPLETED}}))
