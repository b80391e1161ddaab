-- What all migrations make. Written by test_schema.py: see there.

CREATE SEQUENCE job_no_block AS bigint INCREMENT BY 1 START WITH 1 CACHE 1;

CREATE SEQUENCE signal_cancel AS bigint INCREMENT BY 1 START WITH 1 CACHE 1;

CREATE SEQUENCE signal_mirror AS bigint INCREMENT BY 1 START WITH 1 CACHE 1;

CREATE SEQUENCE signal_pause AS bigint INCREMENT BY 1 START WITH 1 CACHE 1;

CREATE SEQUENCE signal_ready AS bigint INCREMENT BY 1 START WITH 1 CACHE 1;

CREATE SEQUENCE signal_session AS bigint INCREMENT BY 1 START WITH 1 CACHE 1;

CREATE TABLE arrival (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane_ids integer[] STORAGE EXTERNAL NOT NULL,
    firsts timestamp with time zone[] STORAGE EXTERNAL NOT NULL,
    first_nos bigint[] STORAGE EXTERNAL NOT NULL,
    lasts timestamp with time zone[] STORAGE EXTERNAL NOT NULL,
    last_nos bigint[] STORAGE EXTERNAL NOT NULL,
    due_at timestamp with time zone
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);
CREATE INDEX arrival_by_xid ON queue_operator.arrival USING btree (xid);

CREATE TABLE attempt (
    job_no bigint NOT NULL,
    version integer NOT NULL,
    token uuid NOT NULL,
    number integer NOT NULL,
    event text NOT NULL,
    from_state text NOT NULL,
    state text NOT NULL,
    assigned_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    assignee_id text NOT NULL,
    worker_name text NOT NULL,
    host text NOT NULL,
    error jsonb,
    eligible_at timestamp with time zone,
    unfenced boolean
);
ALTER TABLE attempt ADD CONSTRAINT attempt_pkey PRIMARY KEY (job_no, version);

CREATE TABLE callback (
    job_no bigint NOT NULL,
    url text NOT NULL,
    namespace text,
    job_id text,
    type text,
    receiver bigint
);
ALTER TABLE callback ADD CONSTRAINT callback_pkey PRIMARY KEY (job_no);

CREATE TABLE checkpoint (
    job_no bigint NOT NULL,
    version integer NOT NULL,
    number bigint NOT NULL,
    data bytea NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE checkpoint ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (job_no);

CREATE TABLE count_delta (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane_id integer NOT NULL,
    state text NOT NULL,
    jobs bigint NOT NULL,
    retries bigint NOT NULL,
    blocked bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
CREATE INDEX count_delta_by_xid ON queue_operator.count_delta USING btree (xid);

CREATE TABLE count_progress (
    version bigint NOT NULL,
    snapshot pg_snapshot NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE count_progress ADD CONSTRAINT count_progress_pkey PRIMARY KEY (version);

CREATE TABLE dependency (
    parent_no bigint NOT NULL,
    child_no bigint NOT NULL,
    place integer NOT NULL,
    parent_id text NOT NULL,
    outcome text
);
ALTER TABLE dependency ADD CONSTRAINT dependency_outcome_check CHECK ((outcome = ANY (ARRAY['COMPLETED'::text, 'STOPPED'::text, 'UNSCHEDULED'::text, 'UNKNOWN_STOPPED'::text, 'DEAD_LETTER'::text])));
ALTER TABLE dependency ADD CONSTRAINT dependency_pkey PRIMARY KEY (child_no, place);
CREATE INDEX dependency_by_parent ON queue_operator.dependency USING btree (parent_no) INCLUDE (child_no);

CREATE TABLE detached (
    job_no bigint NOT NULL
);
ALTER TABLE detached ADD CONSTRAINT detached_pkey PRIMARY KEY (job_no);

CREATE TABLE event_pruned (
    seq bigint NOT NULL
);
ALTER TABLE event_pruned ADD CONSTRAINT event_pruned_pkey PRIMARY KEY (seq);

CREATE TABLE figure_leader (
    version bigint NOT NULL,
    holder text NOT NULL,
    until timestamp with time zone NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE figure_leader ADD CONSTRAINT figure_leader_pkey PRIMARY KEY (version);

CREATE TABLE figure_name (
    namespace_id integer NOT NULL,
    type_id integer NOT NULL,
    used_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE figure_name ADD CONSTRAINT figure_name_pkey PRIMARY KEY (namespace_id, type_id);

CREATE TABLE figure_progress (
    version bigint NOT NULL,
    snapshot pg_snapshot NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    above_seq bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE figure_progress ADD CONSTRAINT figure_progress_pkey PRIMARY KEY (version);

CREATE TABLE final (
    job_no bigint NOT NULL,
    lane_id integer NOT NULL,
    state text NOT NULL,
    order_time timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    eligible_at timestamp with time zone NOT NULL,
    attempt integer NOT NULL,
    lease_version integer NOT NULL,
    transition integer NOT NULL,
    retry_count integer NOT NULL,
    failure_count integer NOT NULL,
    max_attempts integer,
    timeout_s double precision,
    backoff jsonb,
    last_retry_at timestamp with time zone,
    token uuid,
    assignee_id text NOT NULL,
    worker_name text NOT NULL,
    host text NOT NULL,
    assigned_at timestamp with time zone,
    started_at timestamp with time zone,
    error jsonb,
    error_category text,
    error_code text,
    changed_at timestamp with time zone NOT NULL,
    mirrored boolean NOT NULL,
    has_children boolean NOT NULL,
    result bytea,
    result_content_type text,
    finalized_at timestamp with time zone NOT NULL,
    reason text NOT NULL,
    cancel_reason text NOT NULL DEFAULT ''::text,
    failed_at timestamp with time zone,
    namespace_id integer NOT NULL
);
ALTER TABLE final ADD CONSTRAINT final_created_at_check CHECK (((created_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (created_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE final ADD CONSTRAINT final_eligible_at_check CHECK (((eligible_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (eligible_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE final ADD CONSTRAINT final_order_time_check CHECK (((order_time >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (order_time <= '9999-12-30 00:00:00+00'::timestamp with time zone)));
ALTER TABLE final ADD CONSTRAINT final_state_check CHECK ((state = ANY (ARRAY['COMPLETED'::text, 'STOPPED'::text, 'UNSCHEDULED'::text, 'UNKNOWN_STOPPED'::text, 'DEAD_LETTER'::text])));
ALTER TABLE final ADD CONSTRAINT final_pkey PRIMARY KEY (job_no);
CREATE INDEX final_done ON queue_operator.final USING btree (namespace_id, finalized_at) WHERE (state = 'COMPLETED'::text);
CREATE INDEX final_early ON queue_operator.final USING btree (lane_id, created_at, job_no) WHERE ((state = 'COMPLETED'::text) AND (created_at > changed_at));
CREATE INDEX final_ended_created ON queue_operator.final USING btree (lane_id, created_at, job_no) WHERE (state <> 'COMPLETED'::text);
CREATE INDEX final_ended_moved ON queue_operator.final USING btree (lane_id, changed_at, job_no) WHERE (state <> 'COMPLETED'::text);
CREATE INDEX final_failed ON queue_operator.final USING btree (lane_id, COALESCE(failed_at, changed_at), job_no) INCLUDE (error_category, error_code, failed_at, changed_at) WHERE (state = 'DEAD_LETTER'::text);

CREATE TABLE idempotency (
    namespace_id integer NOT NULL,
    key text NOT NULL,
    job_no bigint NOT NULL,
    digest bytea NOT NULL
);
ALTER TABLE idempotency ADD CONSTRAINT idempotency_pkey PRIMARY KEY (namespace_id, key);
CREATE INDEX idempotency_by_job ON queue_operator.idempotency USING btree (job_no);

CREATE TABLE job (
    job_no bigint NOT NULL,
    namespace_id integer NOT NULL,
    id text NOT NULL,
    lane_id integer NOT NULL,
    payload bytea NOT NULL,
    content_type text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    correlation_id text NOT NULL,
    dependency_mode text,
    cluster_uid text,
    resource_name text,
    generation bigint,
    traceparent text,
    tracestate text
);
ALTER TABLE job ADD CONSTRAINT job_created_at_check CHECK (((created_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (created_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE job ADD CONSTRAINT job_pkey PRIMARY KEY (job_no);
ALTER TABLE job ADD CONSTRAINT job_namespace_id_id_key UNIQUE (namespace_id, id);
CREATE INDEX job_by_lane ON queue_operator.job USING btree (lane_id, created_at, job_no) WHERE (lane_id > 0);
CREATE INDEX job_by_resource ON queue_operator.job USING btree (cluster_uid, id) WHERE (cluster_uid IS NOT NULL);
CREATE INDEX job_by_uid ON queue_operator.job USING btree (id) WHERE (cluster_uid IS NOT NULL);

CREATE TABLE job_event (
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamp with time zone NOT NULL DEFAULT now(),
    schema_version smallint NOT NULL DEFAULT 1,
    event text NOT NULL,
    from_state text,
    to_state text,
    job_nos bigint[] STORAGE EXTERNAL NOT NULL,
    attempts integer[] STORAGE EXTERNAL,
    wait_us bigint[] STORAGE EXTERNAL,
    run_us bigint[] STORAGE EXTERNAL,
    workers text[] STORAGE EXTERNAL,
    failed jsonb,
    ids text[] STORAGE EXTERNAL,
    correlations text[],
    lane_of integer[] STORAGE EXTERNAL,
    lanes jsonb,
    lane_ids integer[] STORAGE EXTERNAL,
    untold boolean DEFAULT true
);
ALTER TABLE job_event ADD CONSTRAINT job_event_pkey PRIMARY KEY (seq);
CREATE INDEX job_event_by_xid ON queue_operator.job_event USING btree (xid);
CREATE INDEX job_event_untold ON queue_operator.job_event USING btree (seq) WHERE (untold AND (to_state = ANY (ARRAY['COMPLETED'::text, 'STOPPED'::text, 'UNSCHEDULED'::text, 'UNKNOWN_STOPPED'::text, 'DEAD_LETTER'::text])));

CREATE TABLE job_type (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL
);
ALTER TABLE job_type ADD CONSTRAINT job_type_pkey PRIMARY KEY (id);
ALTER TABLE job_type ADD CONSTRAINT job_type_name_key UNIQUE (name);

CREATE TABLE kind_count (
    namespace_id integer NOT NULL,
    type_id integer NOT NULL,
    priority text NOT NULL,
    version bigint NOT NULL,
    states text[] NOT NULL,
    jobs bigint[] NOT NULL,
    blocked bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE kind_count ADD CONSTRAINT kind_count_pkey PRIMARY KEY (namespace_id, type_id, priority, version);

CREATE TABLE lane (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
    namespace_id integer NOT NULL,
    type_id integer NOT NULL,
    priority text NOT NULL,
    tags text[] NOT NULL,
    used_at timestamp with time zone NOT NULL DEFAULT now(),
    retired xid8
);
ALTER TABLE lane ADD CONSTRAINT lane_pkey PRIMARY KEY (id);
ALTER TABLE lane ADD CONSTRAINT lane_namespace_id_type_id_priority_tags_key UNIQUE (namespace_id, type_id, priority, tags);
CREATE INDEX lane_by_use ON queue_operator.lane USING btree (used_at, ((id + 0)));
CREATE INDEX lane_retired ON queue_operator.lane USING btree (id) WHERE (retired IS NOT NULL);

CREATE TABLE lane_count (
    lane_id integer NOT NULL,
    version bigint NOT NULL,
    states text[] NOT NULL,
    jobs bigint[] NOT NULL,
    retries bigint NOT NULL,
    waiting bigint NOT NULL,
    total bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE lane_count ADD CONSTRAINT lane_count_pkey PRIMARY KEY (lane_id, version);

CREATE TABLE lane_waiting (
    namespace_id integer NOT NULL,
    lane_id integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE lane_waiting ADD CONSTRAINT lane_waiting_pkey PRIMARY KEY (namespace_id, lane_id);

CREATE TABLE lease (
    job_no bigint NOT NULL,
    lane_id integer NOT NULL,
    state text NOT NULL,
    order_time timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    eligible_at timestamp with time zone NOT NULL,
    attempt integer NOT NULL,
    lease_version integer NOT NULL,
    transition integer NOT NULL,
    retry_count integer NOT NULL,
    failure_count integer NOT NULL,
    max_attempts integer,
    timeout_s double precision,
    backoff jsonb,
    last_retry_at timestamp with time zone,
    token uuid NOT NULL,
    assignee_id text NOT NULL,
    worker_name text NOT NULL,
    host text NOT NULL,
    assigned_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone NOT NULL,
    error jsonb,
    changed_at timestamp with time zone NOT NULL,
    mirrored boolean NOT NULL,
    has_children boolean NOT NULL,
    checkpointed boolean NOT NULL DEFAULT false,
    result bytea,
    result_content_type text,
    expires_at timestamp with time zone,
    deadline timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    cancel_forced boolean NOT NULL DEFAULT false,
    cancel_received boolean NOT NULL DEFAULT false,
    cancel_reason text NOT NULL DEFAULT ''::text,
    failed_at timestamp with time zone
) WITH (autovacuum_vacuum_cost_delay=1, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000, fillfactor=90);
ALTER TABLE lease ADD CONSTRAINT lease_created_at_check CHECK (((created_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (created_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE lease ADD CONSTRAINT lease_eligible_at_check CHECK (((eligible_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (eligible_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE lease ADD CONSTRAINT lease_order_time_check CHECK (((order_time >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (order_time <= '9999-12-30 00:00:00+00'::timestamp with time zone)));
ALTER TABLE lease ADD CONSTRAINT lease_state_check CHECK ((state = ANY (ARRAY['RUNNING'::text, 'CANCELLING'::text])));
ALTER TABLE lease ADD CONSTRAINT lease_pkey PRIMARY KEY (job_no);
CREATE INDEX lease_cancelling ON queue_operator.lease USING btree (assignee_id) WHERE (state = 'CANCELLING'::text);

CREATE TABLE lease_check (
    kind text NOT NULL,
    look_at timestamp with time zone NOT NULL,
    number bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    leases bigint[] STORAGE EXTERNAL NOT NULL,
    assignees integer[]
) WITH (autovacuum_vacuum_cost_delay=1, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
CREATE INDEX lease_check_due ON queue_operator.lease_check USING btree (kind, look_at);
CREATE INDEX lease_check_fresh ON queue_operator.lease_check USING btree (xid);

CREATE TABLE log_chunk (
    job_no bigint NOT NULL,
    version integer NOT NULL,
    last bigint NOT NULL,
    attempt integer NOT NULL,
    lines integer NOT NULL,
    bytes integer NOT NULL,
    body text NOT NULL
);
ALTER TABLE log_chunk ADD CONSTRAINT log_chunk_pkey PRIMARY KEY (job_no, version, last);

CREATE TABLE lost_worker (
    session_id text NOT NULL,
    namespace text NOT NULL,
    worker_name text NOT NULL,
    host text NOT NULL,
    version text NOT NULL,
    types text[] NOT NULL,
    capacity integer NOT NULL,
    jobs integer NOT NULL,
    lost_at timestamp with time zone NOT NULL
);
ALTER TABLE lost_worker ADD CONSTRAINT lost_worker_pkey PRIMARY KEY (session_id);
CREATE INDEX lost_worker_name ON queue_operator.lost_worker USING btree (namespace, worker_name);
CREATE INDEX lost_worker_newest ON queue_operator.lost_worker USING btree (namespace, lost_at);

CREATE TABLE mirror_outbox (
    sequence bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    job_no bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE mirror_outbox ADD CONSTRAINT mirror_outbox_pkey PRIMARY KEY (sequence);

CREATE TABLE namespace (
    id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    retired_at timestamp with time zone
);
ALTER TABLE namespace ADD CONSTRAINT namespace_pkey PRIMARY KEY (id);
ALTER TABLE namespace ADD CONSTRAINT namespace_name_key UNIQUE (name);

CREATE TABLE namespace_count (
    namespace_id integer NOT NULL,
    version bigint NOT NULL,
    states text[] NOT NULL,
    jobs bigint[] NOT NULL,
    retries bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE namespace_count ADD CONSTRAINT namespace_count_pkey PRIMARY KEY (namespace_id, version);

CREATE TABLE parent_result (
    job_no bigint NOT NULL,
    result bytea,
    content_type text NOT NULL
);
ALTER TABLE parent_result ADD CONSTRAINT parent_result_pkey PRIMARY KEY (job_no);

CREATE TABLE pause (
    namespace text NOT NULL,
    type text NOT NULL,
    reason text NOT NULL,
    paused_by text NOT NULL,
    since timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE pause ADD CONSTRAINT pause_pkey PRIMARY KEY (namespace, type);

CREATE TABLE pipeline_checkpoint (
    name text NOT NULL,
    generation integer NOT NULL,
    system_identifier text NOT NULL,
    snapshot text NOT NULL,
    updated_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE pipeline_checkpoint ADD CONSTRAINT pipeline_checkpoint_pkey PRIMARY KEY (name);

CREATE TABLE progress (
    lease bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    percent integer NOT NULL,
    message text NOT NULL
) WITH (autovacuum_vacuum_cost_delay=1, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE progress ADD CONSTRAINT progress_at_check CHECK (((at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE progress ADD CONSTRAINT progress_pkey PRIMARY KEY (lease, at);

CREATE TABLE ready (
    job_no bigint NOT NULL,
    lane_id integer NOT NULL,
    state text NOT NULL DEFAULT 'INITIAL_PENDING'::text,
    order_time timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT now(),
    due boolean NOT NULL,
    eligible_at timestamp with time zone NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    lease_version integer NOT NULL DEFAULT 0,
    transition integer NOT NULL DEFAULT 1,
    retry_count integer NOT NULL DEFAULT 0,
    failure_count integer NOT NULL DEFAULT 0,
    max_attempts integer,
    timeout_s double precision,
    backoff jsonb,
    last_retry_at timestamp with time zone,
    token uuid,
    assignee_id text NOT NULL DEFAULT ''::text,
    worker_name text NOT NULL DEFAULT ''::text,
    host text NOT NULL DEFAULT ''::text,
    assigned_at timestamp with time zone,
    started_at timestamp with time zone,
    error jsonb,
    error_category text,
    error_code text,
    changed_at timestamp with time zone NOT NULL DEFAULT now(),
    mirrored boolean NOT NULL DEFAULT false,
    has_children boolean NOT NULL DEFAULT false,
    checkpointed boolean NOT NULL DEFAULT false,
    result bytea,
    result_content_type text,
    blocked boolean DEFAULT false,
    failed_at timestamp with time zone
) WITH (autovacuum_vacuum_cost_delay=1, autovacuum_vacuum_scale_factor=0.02, fillfactor=90);
ALTER TABLE ready ADD CONSTRAINT ready_created_at_check CHECK (((created_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (created_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE ready ADD CONSTRAINT ready_eligible_at_check CHECK (((eligible_at >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (eligible_at <= '9998-12-31 23:59:59.999999+00'::timestamp with time zone)));
ALTER TABLE ready ADD CONSTRAINT ready_order_time_check CHECK (((order_time >= '0001-01-02 00:00:00+00'::timestamp with time zone) AND (order_time <= '9999-12-30 00:00:00+00'::timestamp with time zone)));
ALTER TABLE ready ADD CONSTRAINT ready_state_check CHECK ((state = ANY (ARRAY['INITIAL_PENDING'::text, 'FAILED_RETRY'::text, 'UNKNOWN_RETRY'::text])));
ALTER TABLE ready ADD CONSTRAINT ready_pkey PRIMARY KEY (job_no);
CREATE INDEX ready_aside_created ON queue_operator.ready USING btree (lane_id, created_at, job_no) WHERE ((NOT due) OR (state <> 'INITIAL_PENDING'::text) OR (created_at <> changed_at));
CREATE INDEX ready_aside_moved ON queue_operator.ready USING btree (lane_id, changed_at, job_no) WHERE ((NOT due) OR (state <> 'INITIAL_PENDING'::text) OR (created_at <> changed_at));
CREATE INDEX ready_claim ON queue_operator.ready USING btree (lane_id, order_time, job_no) WHERE due;
CREATE INDEX ready_failed ON queue_operator.ready USING btree (lane_id, COALESCE(failed_at, changed_at), job_no) INCLUDE (error_category, error_code, failed_at, changed_at) WHERE ((error_category IS NOT NULL) AND (state = 'FAILED_RETRY'::text));
CREATE INDEX ready_later ON queue_operator.ready USING btree (lane_id, eligible_at) INCLUDE (state) WHERE ((NOT COALESCE(due, true)) AND (NOT blocked));
CREATE INDEX ready_mirrored ON queue_operator.ready USING btree (job_no) WHERE mirrored;
CREATE INDEX ready_stage ON queue_operator.ready USING btree (eligible_at) WHERE ((NOT due) AND (NOT blocked));
CREATE INDEX ready_undue ON queue_operator.ready USING btree (lane_id, state, blocked) WHERE ((NOT due) AND (lane_id > 0));

CREATE TABLE roll_up (
    namespace_id integer NOT NULL,
    span_s integer NOT NULL,
    begins_at timestamp with time zone NOT NULL,
    type_id integer NOT NULL,
    priority text NOT NULL,
    submitted bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    dead_letter bigint NOT NULL,
    cancelled bigint NOT NULL,
    attempts_failed bigint NOT NULL
) WITH (autovacuum_vacuum_cost_delay=1, autovacuum_vacuum_scale_factor=0.02, fillfactor=50);
ALTER TABLE roll_up ADD CONSTRAINT roll_up_pkey PRIMARY KEY (namespace_id, span_s, begins_at, type_id, priority);
CREATE INDEX roll_up_by_age ON queue_operator.roll_up USING btree (span_s, begins_at) WHERE (span_s > 0);

CREATE TABLE roll_up_latency (
    namespace_id integer NOT NULL,
    span_s integer NOT NULL,
    begins_at timestamp with time zone NOT NULL,
    waits boolean NOT NULL,
    buckets smallint[] NOT NULL,
    counts bigint[] NOT NULL,
    max_us bigint NOT NULL
) WITH (autovacuum_vacuum_cost_delay=1, autovacuum_vacuum_scale_factor=0.02, fillfactor=50);
ALTER TABLE roll_up_latency ADD CONSTRAINT roll_up_latency_pkey PRIMARY KEY (namespace_id, span_s, begins_at, waits);
CREATE INDEX roll_up_latency_by_age ON queue_operator.roll_up_latency USING btree (span_s, begins_at) WHERE (span_s > 0);

CREATE TABLE roll_up_progress (
    snapshot pg_snapshot NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    above_seq bigint NOT NULL DEFAULT 0,
    closed_until timestamp with time zone,
    version bigint NOT NULL
);
ALTER TABLE roll_up_progress ADD CONSTRAINT roll_up_progress_pkey PRIMARY KEY (version);

CREATE TABLE rollup_hour (
    hour timestamp with time zone NOT NULL,
    namespace text NOT NULL,
    type text NOT NULL,
    state text NOT NULL,
    transitions bigint NOT NULL,
    rate_per_s double precision NOT NULL,
    queue_latency_p50_us bigint,
    queue_latency_p90_us bigint,
    queue_latency_p99_us bigint,
    queue_latency_max_us bigint,
    execution_p50_us bigint,
    execution_p90_us bigint,
    execution_p99_us bigint,
    execution_max_us bigint,
    queue_latency_histogram jsonb,
    execution_histogram jsonb,
    written_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE rollup_hour ADD CONSTRAINT rollup_hour_pkey PRIMARY KEY (hour, namespace, type, state);

CREATE TABLE schema_migration (
    name text NOT NULL,
    checksum text NOT NULL,
    needs text,
    applied_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE schema_migration ADD CONSTRAINT schema_migration_pkey PRIMARY KEY (name);

CREATE TABLE session_beat (
    replica text NOT NULL,
    number bigint NOT NULL,
    openings bigint[] NOT NULL,
    busy integer[] NOT NULL,
    draining boolean[] NOT NULL,
    followed integer[] NOT NULL,
    heard_at timestamp with time zone[] NOT NULL
);
ALTER TABLE session_beat ADD CONSTRAINT session_beat_pkey PRIMARY KEY (replica, number);

CREATE TABLE spawned (
    child_no bigint NOT NULL,
    parent_id text NOT NULL,
    depth integer NOT NULL DEFAULT 1
);
ALTER TABLE spawned ADD CONSTRAINT spawned_pkey PRIMARY KEY (child_no);

CREATE TABLE suspension (
    job_no bigint NOT NULL,
    is_on boolean NOT NULL,
    changed_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE suspension ADD CONSTRAINT suspension_pkey PRIMARY KEY (job_no);

CREATE TABLE sweep (
    number bigint NOT NULL,
    swept_at timestamp with time zone NOT NULL,
    resumed_at timestamp with time zone,
    kinds text[] NOT NULL DEFAULT '{}'::text[],
    marks timestamp with time zone[] NOT NULL DEFAULT '{}'::timestamp with time zone[],
    seen pg_snapshot,
    seen_at timestamp with time zone
);
ALTER TABLE sweep ADD CONSTRAINT sweep_pkey PRIMARY KEY (number);

CREATE TABLE token_bucket (
    name text NOT NULL,
    version bigint NOT NULL,
    tokens double precision NOT NULL,
    filled_at timestamp with time zone NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE token_bucket ADD CONSTRAINT token_bucket_pkey PRIMARY KEY (name, version);

CREATE TABLE tombstone (
    uid text NOT NULL,
    state text NOT NULL,
    permanent boolean NOT NULL,
    transition integer NOT NULL,
    attempt integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    finalized_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone NOT NULL DEFAULT now()
);
ALTER TABLE tombstone ADD CONSTRAINT tombstone_state_check CHECK ((state = ANY (ARRAY['COMPLETED'::text, 'STOPPED'::text, 'UNSCHEDULED'::text, 'UNKNOWN_STOPPED'::text, 'DEAD_LETTER'::text])));
ALTER TABLE tombstone ADD CONSTRAINT tombstone_pkey PRIMARY KEY (uid);
CREATE INDEX tombstone_by_age ON queue_operator.tombstone USING btree (deleted_at);

CREATE TABLE transition (
    job_no bigint NOT NULL,
    number integer NOT NULL,
    event text NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    at timestamp with time zone NOT NULL,
    reason text NOT NULL
);
ALTER TABLE transition ADD CONSTRAINT transition_pkey PRIMARY KEY (job_no, number);

CREATE TABLE webhook_batch (
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    salt uuid NOT NULL DEFAULT gen_random_uuid(),
    ended_at timestamp with time zone NOT NULL DEFAULT now(),
    job_state text NOT NULL,
    receivers bigint[] STORAGE EXTERNAL NOT NULL,
    attempts integer[] STORAGE EXTERNAL NOT NULL,
    namespaces text[] STORAGE EXTERNAL NOT NULL,
    job_ids text[] STORAGE EXTERNAL NOT NULL,
    types text[] STORAGE EXTERNAL NOT NULL,
    urls text[] STORAGE EXTERNAL NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE webhook_batch ADD CONSTRAINT webhook_batch_pkey PRIMARY KEY (number);

CREATE TABLE webhook_count (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    namespace text NOT NULL,
    state text NOT NULL,
    messages bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
ALTER TABLE webhook_count ADD CONSTRAINT webhook_count_pkey PRIMARY KEY (id);

CREATE TABLE webhook_message (
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    salt uuid NOT NULL,
    receiver bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    finalized_at timestamp with time zone NOT NULL,
    next_at timestamp with time zone,
    last_at timestamp with time zone,
    attempt integer NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    claim integer NOT NULL DEFAULT 0,
    last_status integer,
    due boolean NOT NULL DEFAULT true,
    state text NOT NULL DEFAULT 'PENDING'::text,
    job_state text NOT NULL,
    holder text NOT NULL DEFAULT ''::text,
    namespace text NOT NULL,
    job_id text NOT NULL,
    type text NOT NULL,
    url text NOT NULL,
    last_error text NOT NULL DEFAULT ''::text
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000);
ALTER TABLE webhook_message ADD CONSTRAINT webhook_message_check CHECK (((NOT due) OR (state = 'PENDING'::text)));
ALTER TABLE webhook_message ADD CONSTRAINT webhook_message_state_check CHECK ((state = ANY (ARRAY['PENDING'::text, 'DELIVERED'::text, 'FAILED'::text])));
ALTER TABLE webhook_message ADD CONSTRAINT webhook_message_pkey PRIMARY KEY (number);
CREATE INDEX webhook_by_job ON queue_operator.webhook_message USING btree (job_id, number);
CREATE INDEX webhook_due ON queue_operator.webhook_message USING btree (receiver, number) WHERE due;
CREATE INDEX webhook_ended ON queue_operator.webhook_message USING btree (state, last_at) WHERE (state = ANY (ARRAY['DELIVERED'::text, 'FAILED'::text]));
CREATE INDEX webhook_later ON queue_operator.webhook_message USING btree (next_at) WHERE ((NOT due) AND (state = 'PENDING'::text));
CREATE INDEX webhook_listed ON queue_operator.webhook_message USING btree (namespace, state, number);

CREATE TABLE worker_session (
    session_id text NOT NULL,
    namespace text NOT NULL,
    worker_name text NOT NULL,
    pod_uid text NOT NULL,
    host text NOT NULL,
    replica text NOT NULL,
    tags text[] NOT NULL,
    types text[] NOT NULL,
    capacity integer NOT NULL,
    busy integer NOT NULL,
    draining boolean NOT NULL,
    version text NOT NULL,
    connection text NOT NULL,
    wanted_capacity integer,
    wanted_tags text[],
    wanted_drain boolean,
    ended boolean NOT NULL DEFAULT false,
    order_number integer NOT NULL DEFAULT 0,
    shown boolean NOT NULL DEFAULT false,
    connected_at timestamp with time zone NOT NULL DEFAULT now(),
    opening bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY
) WITH (fillfactor=90);
ALTER TABLE worker_session ADD CONSTRAINT worker_session_pkey PRIMARY KEY (session_id);
