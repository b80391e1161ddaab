-- Who has some idempotency keys: (place from 1, number, id, digest); no row where the job that
-- had the key is gone. Parameters: namespaces (int[]), keys (text[]).
-- Index: idempotency_pkey, job_pkey. Locks: none.
SELECT g.n::int, held.job_no, job.id, held.digest
FROM unnest(%(namespaces)s::int[], %(keys)s::text[]) WITH ORDINALITY AS g(namespace_id, key, n)
CROSS JOIN LATERAL (
    SELECT * FROM idempotency
    WHERE idempotency.namespace_id = g.namespace_id AND idempotency.key = g.key LIMIT 1
) held
CROSS JOIN LATERAL (SELECT id FROM job WHERE job.job_no = held.job_no LIMIT 1) job
