-- Adds what the copies of all jobs that are counted come to. Parameters: copies, the first included.
-- Traps: how many are blocked is folded by kind, not by lane: any lane of the kind stands for it.
INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
SELECT lane_id, state, jobs * (%(copies)s - 1), retries * (%(copies)s - 1), blocked * (%(copies)s - 1)
FROM (
    SELECT lane_id, state, sum(jobs)::bigint AS jobs, sum(retries)::bigint AS retries,
           sum(blocked)::bigint AS blocked
    FROM (
        SELECT lane_id, told.state, told.jobs,
               CASE WHEN told.place = 1 THEN retries ELSE 0 END AS retries, 0 AS blocked
        FROM lane_count
        CROSS JOIN LATERAL unnest(states, lane_count.jobs) WITH ORDINALITY
            AS told(state, jobs, place)
        UNION ALL
        SELECT min(lane.id), {{INITIAL_PENDING}}, 0, 0, kind_count.blocked
        FROM kind_count JOIN lane USING (namespace_id, type_id, priority)
        GROUP BY namespace_id, type_id, priority, kind_count.blocked
        UNION ALL
        SELECT lane_id, state, jobs, retries, blocked FROM count_delta
    ) AS parts
    GROUP BY lane_id, state
) AS counted
