-- Parameters: ids (text[]), payloads (bytea[]).
WITH stored AS (
    INSERT INTO job (id, type, payload, state, created_at, order_time, eligible_at)
    SELECT id, 'noop', payload, {{INITIAL_PENDING}}, now(), now(), now()
    FROM unnest(%(ids)s::text[], %(payloads)s::bytea[]) AS g(id, payload)
    RETURNING job_no
)
INSERT INTO job_event (event, job_nos) SELECT 'SUBMIT', array_agg(job_no) FROM stored
