-- One row per job for its whole life. Half of each page is kept free, so that updates that
-- touch no index can stay on the page.
CREATE TABLE job (
    job_no        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            text        NOT NULL UNIQUE,
    type          text        NOT NULL,
    payload       bytea       NOT NULL,
    state         text        NOT NULL,
    created_at    timestamptz NOT NULL,
    order_time    timestamptz NOT NULL,
    eligible_at   timestamptz NOT NULL,
    attempt       integer     NOT NULL DEFAULT 0,
    lease_version integer     NOT NULL DEFAULT 0,
    retry_count   integer     NOT NULL DEFAULT 0,
    max_attempts  integer,
    last_retry_at timestamptz,
    token         uuid,
    expires_at    timestamptz,
    assignee_id   text        NOT NULL DEFAULT '',
    assigned_at   timestamptz,
    started_at    timestamptz,
    finalized_at  timestamptz,
    error         jsonb,
    result        bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX job_claim ON job (order_time, job_no) WHERE state IN ({{eligible}});
CREATE TABLE job_event (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid     xid8   NOT NULL DEFAULT pg_current_xact_id(),
    at      timestamptz NOT NULL DEFAULT now(),
    event   text   NOT NULL,
    job_nos bigint[] NOT NULL
);
