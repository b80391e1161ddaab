-- Counts of what happened, by minute, hour and day, and what quotas are measured with.

-- Of each job of the row the lane it was in; of SUBMIT those of `lanes`. NULL in rows that an
-- older release wrote.
ALTER TABLE job_event ADD COLUMN lane_ids integer[];
ALTER TABLE job_event ALTER COLUMN lane_ids SET STORAGE EXTERNAL;

-- How often what happened in `span_s` seconds from `begins_at` on, by type and priority.
CREATE TABLE roll_up (
    namespace_id    integer     NOT NULL,
    span_s          integer     NOT NULL,
    begins_at       timestamptz NOT NULL,
    type_id         integer     NOT NULL,
    priority        text        NOT NULL,
    submitted       bigint      NOT NULL,
    completed       bigint      NOT NULL,
    failed          bigint      NOT NULL,
    dead_letter     bigint      NOT NULL,
    cancelled       bigint      NOT NULL,
    attempts_failed bigint      NOT NULL,
    PRIMARY KEY (namespace_id, span_s, begins_at, type_id, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
-- The condition always holds, and keeps windows from this index, which have a better one.
CREATE INDEX roll_up_by_age ON roll_up (span_s, begins_at) WHERE span_s > 0;

-- How long attempts waited (eligible to assigned) or ran (assigned to outcome): numbers of buckets,
-- ascending, and as many counts of the values in each.
CREATE TABLE roll_up_latency (
    namespace_id integer     NOT NULL,
    span_s       integer     NOT NULL,
    begins_at    timestamptz NOT NULL,
    waits        boolean     NOT NULL,
    buckets      smallint[]  NOT NULL,
    counts       bigint[]    NOT NULL,
    max_us       bigint      NOT NULL,
    PRIMARY KEY (namespace_id, span_s, begins_at, waits)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX roll_up_latency_by_age ON roll_up_latency (span_s, begins_at) WHERE span_s > 0;

-- Which rows of the log are in the roll-ups: those that `snapshot` sees, at the beginning none.
-- Where `xid` is not the transaction that really wrote the row, the database is a restored copy;
-- the numbers of transactions in rows up to `above_seq` are not of this database.
CREATE TABLE roll_up_progress (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    snapshot pg_snapshot NOT NULL,
    xid      xid8        NOT NULL DEFAULT pg_current_xact_id(),
    above_seq bigint     NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO roll_up_progress (snapshot) VALUES ('3:3:');

-- Buckets of tokens that all replicas share. They fill with time, as far as the taker says.
CREATE TABLE token_bucket (
    name      text             PRIMARY KEY,
    tokens    double precision NOT NULL,
    filled_at timestamptz      NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
