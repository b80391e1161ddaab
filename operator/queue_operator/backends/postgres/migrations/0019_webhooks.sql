-- What a message needs to know of its job, beside the URL. NULL where an older release stored it.
-- `receiver`: a hash of the namespace and of where the URL leads.
ALTER TABLE callback ADD COLUMN namespace text;
ALTER TABLE callback ADD COLUMN job_id    text;
ALTER TABLE callback ADD COLUMN type      text;
ALTER TABLE callback ADD COLUMN receiver  bigint;

-- What the ends of jobs with a callback leave behind, all of one statement and one state together: to
-- write a message of its own for each would take the statement twice as long. Arrays of equal length,
-- not compressed, as they are soon read.
CREATE TABLE webhook_batch (
    number     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    salt       uuid        NOT NULL DEFAULT gen_random_uuid(),
    ended_at   timestamptz NOT NULL DEFAULT now(),
    job_state  text        NOT NULL,
    receivers  bigint[]    NOT NULL,
    attempts   integer[]   NOT NULL,
    namespaces text[]      NOT NULL,
    job_ids    text[]      NOT NULL,
    types      text[]      NOT NULL,
    urls       text[]      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE webhook_batch ALTER COLUMN receivers SET STORAGE EXTERNAL,
    ALTER COLUMN attempts SET STORAGE EXTERNAL, ALTER COLUMN namespaces SET STORAGE EXTERNAL,
    ALTER COLUMN job_ids SET STORAGE EXTERNAL, ALTER COLUMN types SET STORAGE EXTERNAL,
    ALTER COLUMN urls SET STORAGE EXTERNAL;

-- A row for each end of a job that has a callback, made of those by whoever looks first. Nothing in it
-- refers to the job, which may be gone, or run again. Jobs that ended before have none.
-- The id that everybody knows is made of `number` and `salt`, which is random, so that a copy of this
-- database makes others. What is `due` is told now; what is PENDING and not due becomes so at
-- `next_at`: it failed before, or `holder` tells it right now and counts as dead by then.
CREATE TABLE webhook_message (
    number       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    salt         uuid        NOT NULL,
    receiver     bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    finalized_at timestamptz NOT NULL,
    next_at      timestamptz,
    last_at      timestamptz,
    attempt      integer     NOT NULL,
    tries        integer     NOT NULL DEFAULT 0,
    claim        integer     NOT NULL DEFAULT 0,
    last_status  integer,
    due          boolean     NOT NULL DEFAULT true,
    state        text        NOT NULL DEFAULT 'PENDING'
                 CHECK (state IN ('PENDING', 'DELIVERED', 'FAILED')),
    job_state    text        NOT NULL,
    holder       text        NOT NULL DEFAULT '',
    namespace    text        NOT NULL,
    job_id       text        NOT NULL,
    type         text        NOT NULL,
    url          text        NOT NULL,
    last_error   text        NOT NULL DEFAULT '',
    CHECK (NOT due OR state = 'PENDING')
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- From receiver to receiver, passing over what else each of them has.
CREATE INDEX webhook_due ON webhook_message (receiver, number) WHERE due;
CREATE INDEX webhook_later ON webhook_message (next_at) WHERE NOT due AND state = 'PENDING';
CREATE INDEX webhook_listed ON webhook_message (namespace, state, number);
CREATE INDEX webhook_by_job ON webhook_message (job_id, number);
CREATE INDEX webhook_ended ON webhook_message (state, last_at)
    WHERE state IN ('DELIVERED', 'FAILED');

-- How many messages there are is the sum of these rows, any of which may be replaced by their sum.
CREATE TABLE webhook_count (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text   NOT NULL,
    state     text   NOT NULL,
    messages  bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
