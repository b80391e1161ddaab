-- Counts whose cost does not grow while an old snapshot keeps dead rows from being removed.
-- needs: 0009_counts

ALTER TABLE count_delta RENAME TO count_delta_before;

-- What each statement changed. `blocked`: how many of the jobs wait for others. `xid` tells what the
-- counts have: see `count_progress`.
CREATE TABLE count_delta (
    xid     xid8    NOT NULL DEFAULT pg_current_xact_id(),
    lane_id integer NOT NULL,
    state   text    NOT NULL,
    jobs    bigint  NOT NULL,
    retries bigint  NOT NULL,
    blocked bigint  NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX count_delta_by_xid ON count_delta (xid);
INSERT INTO count_delta (lane_id, state, jobs, retries)
SELECT lane_id, state, sum(jobs), sum(retries)
FROM (SELECT lane_id, state, jobs, retries FROM lane_count
      UNION ALL SELECT lane_id, state, jobs, retries FROM count_delta_before) AS before
GROUP BY lane_id, state;
INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
SELECT lane_id, state, 0, 0, count(*) FROM ready WHERE NOT due AND blocked GROUP BY lane_id, state;
DROP TABLE count_delta_before;
DROP TABLE lane_count;

-- No row of a count is ever changed: a fold adds a new version and removes the one before by its
-- key. So the newest is the first that is met from the end, however many dead ones lie before it.
-- `states` and `jobs` belong together by position; a state that once had jobs stays, with 0.
CREATE TABLE lane_count (
    lane_id      integer  NOT NULL,
    version      bigint   NOT NULL,
    states       text[]   NOT NULL,
    jobs         bigint[] NOT NULL,
    retries      bigint   NOT NULL,
    waiting      bigint   NOT NULL,  -- in states that wait to be claimed
    total        bigint   NOT NULL,
    PRIMARY KEY (lane_id, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The same by what statistics tell apart, and by namespace.
CREATE TABLE kind_count (
    namespace_id integer  NOT NULL,
    type_id      integer  NOT NULL,
    priority     text     NOT NULL,
    version      bigint   NOT NULL,
    states       text[]   NOT NULL,
    jobs         bigint[] NOT NULL,
    blocked      bigint   NOT NULL,
    PRIMARY KEY (namespace_id, type_id, priority, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE namespace_count (
    namespace_id integer  NOT NULL,
    version      bigint   NOT NULL,
    states       text[]   NOT NULL,
    jobs         bigint[] NOT NULL,
    retries      bigint   NOT NULL,
    PRIMARY KEY (namespace_id, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The lanes of which `lane_count` says that jobs wait in them.
CREATE TABLE lane_waiting (
    namespace_id integer NOT NULL,
    lane_id      integer NOT NULL,
    PRIMARY KEY (namespace_id, lane_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Which changes the counts have: all that `snapshot` sees. Those are deleted, so that it only has
-- to say where the others are. Where `xid` is not the transaction that really wrote the row, the
-- database is a restored copy, and they may be anywhere. There is one row, of the newest version.
CREATE TABLE count_progress (
    version  bigint      PRIMARY KEY,
    snapshot pg_snapshot NOT NULL,
    xid      xid8        NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
INSERT INTO count_progress (version, snapshot) VALUES (0, '3:3:');

-- Of hours and days that were over before this point in time there are roll-ups; what happens later
-- is found in minutes, until its hour, and then its day, is over. So these are written once, and not
-- again and again. NULL: nobody noted it yet.
ALTER TABLE roll_up_progress ADD COLUMN closed_until timestamptz;
-- Each step adds the row of the next version and removes the one before. The row that is there is
-- not written anew: it would look like that of a copy.
ALTER TABLE roll_up_progress DROP COLUMN only_row, ADD COLUMN version bigint NOT NULL DEFAULT 0,
    ADD PRIMARY KEY (version), RESET (fillfactor);
ALTER TABLE roll_up_progress ALTER COLUMN version DROP DEFAULT;

-- As with counts: a take adds a version and removes the one before.
DROP TABLE token_bucket;
CREATE TABLE token_bucket (
    name      text             NOT NULL,
    version   bigint           NOT NULL,
    tokens    double precision NOT NULL,
    filled_at timestamptz      NOT NULL,
    PRIMARY KEY (name, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
