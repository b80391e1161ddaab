-- Adds what the copies of all jobs that are counted come to. Parameters: copies, the first included.
INSERT INTO count_delta (lane_id, state, jobs, retries)
SELECT lane_id, state, jobs * (%(copies)s - 1), retries * (%(copies)s - 1)
FROM (
    SELECT lane_id, state, sum(jobs)::bigint AS jobs, sum(retries)::bigint AS retries
    FROM (
        SELECT lane_id, told.state, told.jobs,
               CASE WHEN told.place = 1 THEN retries ELSE 0 END AS retries
        FROM lane_count
        CROSS JOIN LATERAL unnest(states, lane_count.jobs) WITH ORDINALITY
            AS told(state, jobs, place)
        UNION ALL
        SELECT lane_id, state, jobs, retries FROM count_delta
    ) AS parts
    GROUP BY lane_id, state
) AS counted
