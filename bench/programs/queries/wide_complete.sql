-- Completes jobs that run under the given token. Parameters: ids (text[]), tokens (text[]).
-- Index: job_id_key.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text[], %(tokens)s::uuid[]) AS g(id, token)
), done AS (
    UPDATE job SET state = {{COMPLETED}}, result = 'ok', finalized_at = now()
    FROM given WHERE job.id = given.id AND job.token = given.token AND job.state IN ({{RUNNING}})
    RETURNING job_no
), logged AS (
    INSERT INTO job_event (event, job_nos)
    SELECT 'COMPLETE', array_agg(job_no) FROM done HAVING count(*) > 0
)
SELECT count(*) FROM done
