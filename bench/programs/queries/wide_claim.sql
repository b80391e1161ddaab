-- Takes the oldest eligible jobs. Parameters: limit. Index: job_claim, job_pkey.
WITH taken AS (
    UPDATE job
    SET state = {{RUNNING}}, token = gen_random_uuid(), attempt = attempt + 1,
        lease_version = lease_version + 1, assignee_id = 'bench', assigned_at = now(),
        started_at = coalesce(started_at, now()), expires_at = now() + interval '60 s'
    WHERE job_no = ANY (ARRAY(
        SELECT job_no FROM job
        WHERE state IN ({{eligible}}) AND eligible_at <= now()
        ORDER BY order_time, job_no LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_no, id, token, payload
), logged AS (
    INSERT INTO job_event (event, job_nos)
    SELECT 'CLAIM', array_agg(job_no) FROM taken HAVING count(*) > 0
)
SELECT id, token::text, payload FROM taken
