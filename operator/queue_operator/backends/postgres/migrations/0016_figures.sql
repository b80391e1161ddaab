-- Which replica shows the figures about the stored jobs, and until when it may. Taking the turn and
-- keeping it adds the row of the next version and removes the one before, as in `count_progress`.
CREATE TABLE figure_leader (
    version bigint      PRIMARY KEY,
    holder  text        NOT NULL,
    until   timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
INSERT INTO figure_leader VALUES (0, '', '-infinity');

-- How much of the log the counters of the figures contain, as in `roll_up_progress`. They begin with
-- what is logged from now on.
CREATE TABLE figure_progress (
    version   bigint      PRIMARY KEY,
    snapshot  pg_snapshot NOT NULL,
    xid       xid8        NOT NULL DEFAULT pg_current_xact_id(),
    above_seq bigint      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
INSERT INTO figure_progress (version, snapshot, above_seq) VALUES (0, pg_current_snapshot(), 0);

-- The pairs of namespace and type that the figures show by name, the others being summed up as type
-- `other`. Type 0: the namespace, of which the sum of its other types is shown by name.
CREATE TABLE figure_name (
    namespace_id integer     NOT NULL,
    type_id      integer     NOT NULL,
    used_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace_id, type_id)
);
