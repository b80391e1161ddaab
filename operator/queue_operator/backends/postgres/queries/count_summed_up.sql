-- Part of others: by state the sum of a count's newest version, `kept`, and of what `changed`; of how
-- many in all; and of those that wait to be claimed. Parameters: none. Index: none.
SELECT array_agg(state) AS all_states, array_agg(n) AS all_jobs, sum(n)::bigint AS total,
       coalesce(sum(n) FILTER (WHERE state IN ({{eligible}})), 0)::bigint AS waiting
FROM (
    SELECT state, sum(n)::bigint AS n
    FROM (
        SELECT * FROM unnest(changed.states, changed.jobs) AS added(state, n)
        UNION ALL
        SELECT * FROM unnest(kept.states, kept.jobs) AS had(state, n)
    ) AS parts
    GROUP BY state
) AS by_state
