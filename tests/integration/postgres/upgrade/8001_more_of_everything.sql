-- What a later release may do to the schema while this one works on it.

ALTER TABLE job ADD COLUMN owner text;
ALTER TABLE ready ADD COLUMN owner text;
ALTER TABLE lease ADD COLUMN owner text;
ALTER TABLE final ADD COLUMN owner text;
ALTER TABLE attempt ADD COLUMN cost bigint;
ALTER TABLE job_event ADD COLUMN region text;
-- These change what statements give back that were planned before.
ALTER TABLE worker_session ALTER COLUMN busy TYPE bigint;
ALTER TABLE lane_count ALTER COLUMN retries TYPE numeric;
-- The index behind an upsert goes and comes again.
ALTER TABLE idempotency DROP CONSTRAINT idempotency_pkey;
ALTER TABLE idempotency ADD PRIMARY KEY (namespace_id, key);
CREATE INDEX ready_by_owner ON ready (owner) WHERE owner IS NOT NULL;
CREATE TABLE budget (
    owner text PRIMARY KEY,
    jobs  bigint NOT NULL
);
CREATE FUNCTION spent(whose text) RETURNS bigint LANGUAGE sql STABLE
    RETURN (SELECT count(*) FROM ready WHERE owner = whose);
CREATE OR REPLACE FUNCTION spent(whose text) RETURNS bigint LANGUAGE sql STABLE
    RETURN (SELECT jobs FROM budget WHERE owner = whose);
