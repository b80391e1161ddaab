-- Moves the oldest changes into the counts and gives their number. Parameters: limit integer.
-- Index: count_delta's and lane_count's primary keys.
-- Locks: the changes, those that another fold holds being passed over; then the counts in the
-- order of their key, so that two folds wait for each other but never in a circle.
WITH taken AS (
    SELECT id FROM count_delta ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
removed AS (
    DELETE FROM count_delta
    WHERE id = ANY (ARRAY (SELECT id FROM taken))
    RETURNING lane_id, state, jobs, retries
),
folded AS (
    INSERT INTO lane_count AS stored (lane_id, state, jobs, retries)
    SELECT lane_id, state, sum(jobs), sum(retries)
    FROM removed
    GROUP BY lane_id, state
    ORDER BY lane_id, state
    ON CONFLICT (lane_id, state) DO UPDATE
    SET jobs = stored.jobs + excluded.jobs, retries = stored.retries + excluded.retries
)
SELECT count(*) FROM removed
