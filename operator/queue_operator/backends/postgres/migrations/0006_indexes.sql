-- outside a transaction
-- What is not due, for counting: equal keys share their entries' space. The condition on the lane
-- always holds, and keeps all other statements from this index.
CREATE INDEX CONCURRENTLY ready_undue ON queue_operator.ready (lane_id, state, blocked)
    WHERE NOT due AND lane_id > 0;

-- For searches among failures, and for counting them without a look at their rows. Only jobs that
-- fail pay.
CREATE INDEX CONCURRENTLY ready_failed
    ON queue_operator.ready (lane_id, (coalesce(failed_at, changed_at)), job_no)
    INCLUDE (error_category, error_code, failed_at, changed_at)
    WHERE error_category IS NOT NULL AND state IN ({{FAILED_RETRY}});
CREATE INDEX CONCURRENTLY final_failed
    ON queue_operator.final (lane_id, (coalesce(failed_at, changed_at)), job_no)
    INCLUDE (error_category, error_code, failed_at, changed_at)
    WHERE state IN ({{DEAD_LETTER}});

-- These need not tell what failed any more, as those did whose place they take.
CREATE INDEX CONCURRENTLY ready_aside_moved ON queue_operator.ready (lane_id, changed_at, job_no)
    WHERE NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at;
CREATE INDEX CONCURRENTLY final_ended_moved ON queue_operator.final (lane_id, changed_at, job_no)
    WHERE state <> {{COMPLETED}};
DROP INDEX CONCURRENTLY IF EXISTS queue_operator.ready_aside_changed;
DROP INDEX CONCURRENTLY IF EXISTS queue_operator.final_ended_changed;
