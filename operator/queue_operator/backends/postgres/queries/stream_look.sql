-- How jobs stand, and the snapshot that sees them so: which of the parameters, number, lane, state,
-- attempt, since when, the category of the error, whether it waits for others, or for its time.
-- Parameters: namespaces (text[]), ids (text[]), aligned by position. Locks: none.
-- Index: namespace_name_key, job_namespace_id_id_key, the primary keys of ready, lease and final.
WITH wanted AS MATERIALIZED (
    SELECT g.n::int AS n, found.job_no, found.lane_id
    FROM unnest(%(namespaces)s::text[], %(ids)s::text[]) WITH ORDINALITY AS g(namespace, id, n)
    CROSS JOIN LATERAL (
        SELECT job_no, lane_id FROM job
        WHERE job.namespace_id = (SELECT namespace.id FROM namespace
                                  WHERE namespace.name = g.namespace)
          AND job.id = g.id
        LIMIT 1
    ) AS found
)
SELECT pg_current_snapshot()::text, wanted.n, wanted.job_no, wanted.lane_id, m.*
FROM wanted
CROSS JOIN LATERAL (
    SELECT state, attempt, changed_at, error ->> 'category', blocked IS TRUE AS blocked,
           eligible_at > now() AS is_later
    FROM ready WHERE ready.job_no = wanted.job_no
    UNION ALL
    SELECT state, attempt, changed_at, error ->> 'category', false, false
    FROM lease WHERE lease.job_no = wanted.job_no
    UNION ALL
    SELECT state, attempt, changed_at, error ->> 'category', false, false
    FROM final WHERE final.job_no = wanted.job_no
) AS m
