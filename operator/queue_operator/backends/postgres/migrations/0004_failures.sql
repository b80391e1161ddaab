-- When the error of a job was told, which a manual retry does not change. NULL where there is none,
-- and in rows that an older release wrote: there it is the time of the last change.
ALTER TABLE ready ADD COLUMN failed_at timestamptz;
ALTER TABLE lease ADD COLUMN failed_at timestamptz;
ALTER TABLE final ADD COLUMN failed_at timestamptz;

-- For searches among failures, and for counting them without a look at their rows. Only jobs that
-- fail pay.
CREATE INDEX ready_failed ON ready (lane_id, (coalesce(failed_at, changed_at)), job_no)
    INCLUDE (error_category, error_code, failed_at, changed_at)
    WHERE error_category IS NOT NULL AND state IN ({{FAILED_RETRY}});
CREATE INDEX final_failed ON final (lane_id, (coalesce(failed_at, changed_at)), job_no)
    INCLUDE (error_category, error_code, failed_at, changed_at)
    WHERE state IN ({{DEAD_LETTER}});

-- They need not tell what failed any more.
DROP INDEX ready_aside_changed;
CREATE INDEX ready_aside_changed ON ready (lane_id, changed_at, job_no)
    WHERE NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at;
DROP INDEX final_ended_changed;
CREATE INDEX final_ended_changed ON final (lane_id, changed_at, job_no)
    WHERE state <> {{COMPLETED}};
