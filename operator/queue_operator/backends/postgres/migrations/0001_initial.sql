-- The state of a job is where its row is: `ready` while it waits, `lease` while it is
-- assigned, `final` when it has ended. A transition deletes from one and inserts into the
-- next; `job` holds what was submitted and is never updated.

CREATE TABLE namespace (
    id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

CREATE TABLE job_type (
    id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- A lane is the interned identity of what a claim filters on. Claims match lanes, never jobs.
CREATE TABLE lane (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace_id integer NOT NULL REFERENCES namespace,
    type_id      integer NOT NULL REFERENCES job_type,
    priority     text    NOT NULL,
    tags         text[]  NOT NULL,  -- sorted
    UNIQUE (namespace_id, type_id, priority, tags)
);

-- Processes reserve numbers in blocks, so that a batch can be written without being read back.
CREATE SEQUENCE job_no_block;

CREATE TABLE job (
    job_no         bigint      PRIMARY KEY,
    namespace_id   integer     NOT NULL,
    id             text        NOT NULL,
    lane_id        integer     NOT NULL,
    payload        bytea       NOT NULL,
    content_type   text        NOT NULL,
    created_at     timestamptz NOT NULL,
    correlation_id text        NOT NULL,
    dependency_mode text,            -- NULL: depends on nothing
    -- Only for jobs that came from a custom resource, whose uid is then the id.
    cluster_uid    text,
    resource_name  text,
    generation     bigint,
    UNIQUE (namespace_id, id),
    -- An endless time, or one that no calendar of a reader holds, would break every answer that
    -- has the row in it. The places of a job's moving part say the same.
    CHECK (created_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00')
);
-- The condition always holds. It keeps look-ups by number from walking this index, which a plan
-- made while the table was empty could take for as good as the primary key.
CREATE INDEX job_by_lane ON job (lane_id, created_at, job_no) WHERE lane_id > 0;
CREATE INDEX job_by_resource ON job (cluster_uid, id) WHERE cluster_uid IS NOT NULL;
CREATE INDEX job_by_uid ON job (id) WHERE cluster_uid IS NOT NULL;

-- What moves with a job from table to table is the same set of columns in all three.
-- The defaults are those of a new job.
CREATE TABLE ready (
    job_no        bigint  PRIMARY KEY,
    lane_id       integer NOT NULL,
    state         text    NOT NULL DEFAULT {{INITIAL_PENDING}} CHECK (state IN ({{eligible}})),
    order_time    timestamptz NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- Not due: a delay or a backoff that still runs, or a lost job without attempts left
    -- that waits for a late outcome. The stage step makes rows due.
    due           boolean NOT NULL,
    eligible_at   timestamptz NOT NULL,
    attempt       integer NOT NULL DEFAULT 0,
    lease_version integer NOT NULL DEFAULT 0,
    transition    integer NOT NULL DEFAULT 1,
    retry_count   integer NOT NULL DEFAULT 0,
    failure_count integer NOT NULL DEFAULT 0,
    max_attempts  integer,           -- NULL: no bound, 0: not resolved yet
    timeout_s     double precision,
    backoff       jsonb,
    last_retry_at timestamptz,
    token         uuid,
    assignee_id   text NOT NULL DEFAULT '',
    worker_name   text NOT NULL DEFAULT '',
    host          text NOT NULL DEFAULT '',
    assigned_at   timestamptz,
    started_at    timestamptz,
    error         jsonb,
    -- Of the error, so that searches need not read all of it.
    error_category text,
    error_code    text,
    changed_at    timestamptz NOT NULL DEFAULT now(),
    mirrored      boolean NOT NULL DEFAULT false,
    has_children  boolean NOT NULL DEFAULT false,
    -- Has a row in `checkpoint`. What has ended has none.
    checkpointed  boolean NOT NULL DEFAULT false,
    result        bytea,
    result_content_type text,
    -- Waits for jobs it depends on.
    blocked       boolean NOT NULL DEFAULT false,
    CHECK (created_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (eligible_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (order_time BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00')
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX ready_claim ON ready (lane_id, order_time, job_no) WHERE due;
CREATE INDEX ready_stage ON ready (eligible_at) WHERE NOT due AND NOT blocked;
CREATE INDEX ready_mirrored ON ready (job_no) WHERE mirrored;
-- For searches: what is due and was never touched since its submission is found in `ready_claim`,
-- whose order is that of creation among such rows; these two hold the rest.
CREATE INDEX ready_aside_created ON ready (lane_id, created_at, job_no)
    WHERE NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at;
CREATE INDEX ready_aside_changed ON ready (lane_id, changed_at, job_no)
    INCLUDE (state, error_category, error_code)
    WHERE NOT due OR state <> {{INITIAL_PENDING}} OR created_at <> changed_at;

-- No index on expires_at: heartbeats stay within the page, and the sweeper reads a table
-- that is as long as there are jobs running.
CREATE TABLE lease (
    job_no        bigint  PRIMARY KEY,
    lane_id       integer NOT NULL,
    state         text    NOT NULL CHECK (state IN ({{slot_holding}})),
    order_time    timestamptz NOT NULL,
    created_at    timestamptz NOT NULL,
    eligible_at   timestamptz NOT NULL,
    attempt       integer NOT NULL,
    lease_version integer NOT NULL,
    transition    integer NOT NULL,
    retry_count   integer NOT NULL,
    failure_count integer NOT NULL,
    max_attempts  integer,
    timeout_s     double precision,
    backoff       jsonb,
    last_retry_at timestamptz,
    token         uuid NOT NULL,
    assignee_id   text NOT NULL,
    worker_name   text NOT NULL,
    host          text NOT NULL,
    assigned_at   timestamptz NOT NULL,
    started_at    timestamptz NOT NULL,
    error         jsonb,
    changed_at    timestamptz NOT NULL,
    mirrored      boolean NOT NULL,
    has_children  boolean NOT NULL,
    checkpointed  boolean NOT NULL DEFAULT false,
    result        bytea,
    result_content_type text,
    expires_at    timestamptz,       -- NULL: never
    deadline      timestamptz,       -- end of the execution timeout
    cancel_requested_at timestamptz,
    cancel_forced boolean NOT NULL DEFAULT false,
    cancel_received boolean NOT NULL DEFAULT false,
    cancel_reason text NOT NULL DEFAULT '',
    progress_percent    integer,
    progress_message    text,
    progress_at   timestamptz,
    CHECK (created_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (eligible_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (order_time BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00'),
    CHECK (progress_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 1);
-- Only cancels look for the leases of an assignee often, and they are rare: every claim would
-- pay for an index on all of them. A worker given up by hand is found by reading the leases.
CREATE INDEX lease_cancelling ON lease (assignee_id) WHERE state IN ({{CANCELLING}});

CREATE TABLE final (
    job_no        bigint  PRIMARY KEY,
    lane_id       integer NOT NULL,
    state         text    NOT NULL CHECK (state IN ({{terminal}})),
    order_time    timestamptz NOT NULL,
    created_at    timestamptz NOT NULL,
    eligible_at   timestamptz NOT NULL,
    attempt       integer NOT NULL,
    lease_version integer NOT NULL,
    transition    integer NOT NULL,
    retry_count   integer NOT NULL,
    failure_count integer NOT NULL,
    max_attempts  integer,
    timeout_s     double precision,
    backoff       jsonb,
    last_retry_at timestamptz,
    token         uuid,
    assignee_id   text NOT NULL,
    worker_name   text NOT NULL,
    host          text NOT NULL,
    assigned_at   timestamptz,
    started_at    timestamptz,
    error         jsonb,
    -- Of the error, so that searches need not read all of it; not kept for what COMPLETED.
    error_category text,
    error_code    text,
    changed_at    timestamptz NOT NULL,
    mirrored      boolean NOT NULL,
    has_children  boolean NOT NULL,
    result        bytea,
    result_content_type text,
    finalized_at  timestamptz NOT NULL,
    reason        text  NOT NULL,
    cancel_reason text  NOT NULL DEFAULT '',
    CHECK (created_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (eligible_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (order_time BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00')
);
CREATE INDEX final_completed ON final (finalized_at) WHERE state IN ({{completed}});
-- For searches. Most jobs complete, and those pay for no more than the index above.
CREATE INDEX final_ended_created ON final (lane_id, created_at, job_no)
    WHERE state <> {{COMPLETED}};
CREATE INDEX final_ended_changed ON final (lane_id, changed_at, job_no)
    INCLUDE (state, error_category, error_code)
    WHERE state <> {{COMPLETED}};
-- Only a submitter's own time of creation can lie after the end of the job.
CREATE INDEX final_early ON final (lane_id, created_at, job_no)
    WHERE state IN ({{COMPLETED}}) AND created_at > changed_at;

-- One row per ended attempt; a lost one is rewritten when a late outcome counts after all. The
-- attempt that completed a running job has none: its `final` row says the same.
CREATE TABLE attempt (
    job_no      bigint  NOT NULL,
    version     integer NOT NULL,
    token       uuid    NOT NULL,
    number      integer NOT NULL,
    event       text    NOT NULL,
    from_state  text    NOT NULL,
    state       text    NOT NULL,
    assigned_at timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    assignee_id text    NOT NULL,
    worker_name text    NOT NULL,
    host        text    NOT NULL,
    error       jsonb,
    PRIMARY KEY (job_no, version)
);

-- The rarer transitions: all but submission, claims, and what ended a running attempt.
CREATE TABLE transition (
    job_no     bigint  NOT NULL,
    number     integer NOT NULL,
    event      text    NOT NULL,
    from_state text    NOT NULL,
    to_state   text    NOT NULL,
    at         timestamptz NOT NULL,
    reason     text    NOT NULL,
    PRIMARY KEY (job_no, number)
);

-- Who waits for whom. `outcome` is NULL until the parent has ended, and written in the
-- transaction that ends it.
CREATE TABLE dependency (
    parent_no bigint  NOT NULL,
    child_no  bigint  NOT NULL,
    place     integer NOT NULL,      -- in the child's list, from 0
    parent_id text    NOT NULL,      -- still known when the parent is deleted
    outcome   text CHECK (outcome IN ({{terminal}})),
    PRIMARY KEY (child_no, place)
);
-- With the child as a second key it could serve look-ups by child, by walking all of it.
CREATE INDEX dependency_by_parent ON dependency (parent_no) INCLUDE (child_no);

-- What the next attempt starts from, of jobs that have not ended. The newest of the newest
-- version (of the lease) stays, by its number within the run.
CREATE TABLE checkpoint (
    job_no  bigint PRIMARY KEY,
    version integer     NOT NULL,
    number  bigint      NOT NULL,
    data    bytea       NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);

-- What handlers logged, in the pieces that came: JSON arrays of lines. `version` is that of the
-- lease, `last` the number of the last line within its attempt.
CREATE TABLE log_chunk (
    job_no  bigint  NOT NULL,
    version integer NOT NULL,
    last    bigint  NOT NULL,
    attempt integer NOT NULL,
    lines   integer NOT NULL,
    bytes   integer NOT NULL,
    body    text    NOT NULL,
    PRIMARY KEY (job_no, version, last)
);

-- Which job's handler submitted another one.
CREATE TABLE spawned (
    child_no  bigint PRIMARY KEY,
    parent_id text   NOT NULL          -- still known when the parent is deleted
);

-- What the last parent of a CHAIN job gave.
CREATE TABLE parent_result (
    job_no       bigint PRIMARY KEY,
    result       bytea,
    content_type text NOT NULL
);

CREATE TABLE idempotency (
    namespace_id integer NOT NULL,
    key          text    NOT NULL,
    job_no       bigint  NOT NULL,
    digest       bytea   NOT NULL,
    PRIMARY KEY (namespace_id, key)
);
CREATE INDEX idempotency_by_job ON idempotency (job_no);

-- The log for the lake: one row per statement, event and pair of states; arrays aligned by
-- position, NULL where they do not belong to the event, and not compressed: that would cost
-- more than the rest of the row. `from_state` is NULL for SUBMIT,
-- `to_state` for DELETE.
CREATE TABLE job_event (
    seq            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at             timestamptz NOT NULL DEFAULT now(),
    schema_version smallint    NOT NULL DEFAULT 1,
    event          text        NOT NULL,  -- SUBMIT, DELETE, or an event of the state table
    from_state     text,
    to_state       text,
    job_nos        bigint[]    NOT NULL,
    attempts       integer[],             -- all but SUBMIT
    wait_us        bigint[],              -- CLAIM: eligible to assigned
    run_us         bigint[],              -- outcomes: assigned to outcome
    workers        text[],                -- CLAIM
    failed         jsonb,                 -- failures: [{category, code} | null]
    -- SUBMIT: what never changes. `lane_of` is a position in `lanes`, from 0;
    -- `correlations` is NULL when no job of the batch has one.
    ids            text[],
    correlations   text[],
    lane_of        integer[],
    lanes          jsonb                  -- [{namespace, type, priority, tags}]
);
-- Written so for releases before 16, which do not know it in CREATE TABLE.
ALTER TABLE job_event
    ALTER COLUMN job_nos SET STORAGE EXTERNAL,
    ALTER COLUMN attempts SET STORAGE EXTERNAL,
    ALTER COLUMN wait_us SET STORAGE EXTERNAL,
    ALTER COLUMN run_us SET STORAGE EXTERNAL,
    ALTER COLUMN workers SET STORAGE EXTERNAL,
    ALTER COLUMN ids SET STORAGE EXTERNAL,
    ALTER COLUMN lane_of SET STORAGE EXTERNAL;
CREATE INDEX job_event_by_xid ON job_event (xid);

-- Counts without counting: each statement appends what it changed, the sweeper folds.
CREATE TABLE lane_count (
    lane_id integer NOT NULL,
    state   text    NOT NULL,
    jobs    bigint  NOT NULL,
    retries bigint  NOT NULL,
    PRIMARY KEY (lane_id, state)
);
CREATE TABLE count_delta (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane_id integer NOT NULL,
    state   text    NOT NULL,
    jobs    bigint  NOT NULL,
    retries bigint  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Jobs of custom resources whose status is to be written.
CREATE TABLE mirror_outbox (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_no   bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Resources that are gone while their job is still stored.
CREATE TABLE detached (
    job_no bigint PRIMARY KEY
);

CREATE TABLE worker_session (
    session_id   text PRIMARY KEY,
    namespace    text        NOT NULL,
    worker_name  text        NOT NULL,
    pod_uid      text        NOT NULL,
    host         text        NOT NULL,
    replica      text        NOT NULL,
    tags         text[]      NOT NULL,
    types        text[]      NOT NULL,
    capacity     integer     NOT NULL,
    busy         integer     NOT NULL,
    draining     boolean     NOT NULL,
    version      text        NOT NULL,
    connection   text        NOT NULL,  -- of the stream that has the session now
    wanted_capacity integer,            -- what the cluster's operators want; NULL: as declared
    wanted_tags     text[],
    wanted_drain    boolean,
    ended        boolean     NOT NULL DEFAULT false,
    order_number integer     NOT NULL DEFAULT 0,
    followed     integer     NOT NULL DEFAULT 0,
    shown        boolean     NOT NULL DEFAULT false,
    connected_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Wake-ups between processes: a topic's version rises with every announcement.
CREATE TABLE signal (
    topic   text   PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- When the sweeper last finished, so that an outage does not hand out every job at once.
CREATE TABLE sweep (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    swept_at timestamptz NOT NULL,
    resumed_at timestamptz
);
INSERT INTO sweep (swept_at) VALUES (now());

-- Written by the pipeline.
CREATE TABLE rollup_hour (
    hour                    timestamptz NOT NULL,
    namespace               text        NOT NULL,
    type                    text        NOT NULL,
    state                   text        NOT NULL,
    transitions             bigint      NOT NULL,
    rate_per_s              double precision NOT NULL,
    queue_latency_p50_us    bigint,
    queue_latency_p90_us    bigint,
    queue_latency_p99_us    bigint,
    queue_latency_max_us    bigint,
    execution_p50_us        bigint,
    execution_p90_us        bigint,
    execution_p99_us        bigint,
    execution_max_us        bigint,
    queue_latency_histogram jsonb,
    execution_histogram     jsonb,
    written_at              timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (hour, namespace, type, state)
);
CREATE TABLE pipeline_checkpoint (
    name              text PRIMARY KEY,
    generation        integer     NOT NULL,
    system_identifier text        NOT NULL,
    snapshot          text        NOT NULL,
    updated_at        timestamptz NOT NULL DEFAULT now()
);
