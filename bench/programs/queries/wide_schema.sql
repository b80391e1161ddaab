-- One row per job for its whole life, in place of the tables `job`, `ready`, `lease` and `final`:
-- their columns, their checks and what their indexes are for. All other tables are the product's.
-- Traps: an update that changes a column of an index, or of an index's condition, makes a new
--   entry in every index of the row. A claim has to, since it takes the row out of `job_claim`.
--   A completion need not (HOT): hence no index has a column that a completion changes, neither
--   the state nor the time of the change, and each page has room for the three versions of its
--   jobs, so that even where no dead row can be removed a completion stays on the page. BRIN is
--   the kind of index that does not count here, since PostgreSQL 16.
SET search_path = queue_operator;
DROP TABLE job, ready, lease, final;
CREATE TABLE job (
    -- What never changes comes first, then what only a claim sets: of an updated row, the log
    -- leaves out how it begins as long as that stayed the same.
    job_no        bigint      PRIMARY KEY,
    namespace_id  integer     NOT NULL,
    id            text        NOT NULL,
    lane_id       integer     NOT NULL,
    payload       bytea       NOT NULL,
    content_type  text        NOT NULL,
    created_at    timestamptz NOT NULL,
    correlation_id text       NOT NULL,
    traceparent text,
    tracestate text,
    dependency_mode text,
    cluster_uid   text,
    resource_name text,
    generation    bigint,
    order_time    timestamptz NOT NULL,
    eligible_at   timestamptz NOT NULL,
    retry_count   integer     NOT NULL DEFAULT 0,
    failure_count integer     NOT NULL DEFAULT 0,
    last_retry_at timestamptz,
    blocked       boolean     NOT NULL DEFAULT false,
    mirrored      boolean     NOT NULL DEFAULT false,
    has_children  boolean     NOT NULL DEFAULT false,
    error         jsonb,
    error_category text,
    error_code    text,
    -- NULL: does not wait. False: a delay or a backoff still runs.
    due           boolean,
    -- The time of the last change, of jobs that wait again or ended other than well: for searches.
    apart_at      timestamptz,
    attempt       integer     NOT NULL DEFAULT 0,
    lease_version integer     NOT NULL DEFAULT 0,
    max_attempts  integer,
    timeout_s     double precision,
    backoff       jsonb,
    token         uuid,
    assignee_id   text        NOT NULL DEFAULT '',
    worker_name   text        NOT NULL DEFAULT '',
    host          text        NOT NULL DEFAULT '',
    assigned_at   timestamptz,
    started_at    timestamptz,
    cancel_requested_at timestamptz,
    cancel_forced boolean     NOT NULL DEFAULT false,
    cancel_received boolean   NOT NULL DEFAULT false,
    cancel_reason text        NOT NULL DEFAULT '',
    progress_percent integer,
    progress_message text,
    progress_at   timestamptz,
    state         text        NOT NULL DEFAULT {{INITIAL_PENDING}}
        CHECK (state IN ({{eligible}}, {{slot_holding}}, {{terminal}})),
    transition    integer     NOT NULL DEFAULT 1,
    changed_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    deadline      timestamptz,
    result        bytea,
    result_content_type text,
    finalized_at  timestamptz,
    reason        text        NOT NULL DEFAULT '',
    UNIQUE (namespace_id, id),
    CHECK (created_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (eligible_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00'),
    CHECK (order_time BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00'),
    CHECK (progress_at BETWEEN '0001-01-02 00:00+00' AND '9998-12-31 23:59:59.999999+00')
) WITH (fillfactor = 33, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- Claims and their staging.
CREATE INDEX job_claim ON job (lane_id, order_time, job_no) WHERE due;
CREATE INDEX job_stage ON job (eligible_at) WHERE NOT due AND NOT blocked;
-- Leases of one assignee that are to be cancelled. When a lease has to be looked at is told in
-- `lease_check`, as by the product.
CREATE INDEX job_cancelling ON job (assignee_id) WHERE cancel_requested_at IS NOT NULL;
-- Retention, and searches for what was completed at some time.
CREATE INDEX job_finalized ON job USING brin (finalized_at);
-- Custom resources.
CREATE INDEX job_mirrored ON job (job_no) WHERE mirrored AND due IS NOT NULL;
CREATE INDEX job_by_resource ON job (cluster_uid, id) WHERE cluster_uid IS NOT NULL;
CREATE INDEX job_by_uid ON job (id) WHERE cluster_uid IS NOT NULL;
-- Searches: all jobs by creation, and those few that neither wait untouched nor completed.
CREATE INDEX job_by_lane ON job (lane_id, created_at, job_no) WHERE lane_id > 0;
CREATE INDEX job_apart_created ON job (lane_id, created_at, job_no)
    WHERE apart_at IS NOT NULL OR NOT due;
CREATE INDEX job_apart_changed ON job (lane_id, (coalesce(apart_at, created_at)), job_no)
    INCLUDE (error_category, error_code)
    WHERE apart_at IS NOT NULL OR NOT due;
