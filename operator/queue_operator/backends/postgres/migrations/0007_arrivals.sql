-- needs: 0007_arrivals
-- What makes jobs claimable tells of it, in the same transaction: who claims need not look for them.

-- One row per statement. Aligned by position: lanes, and the first and the last place (order time
-- and number) that jobs came to have in them; a lane may occur again. Read by difference of
-- snapshots, and forgotten after some minutes.
CREATE TABLE arrival (
    xid         xid8          NOT NULL DEFAULT pg_current_xact_id(),
    lane_ids    integer[]     NOT NULL,
    firsts      timestamptz[] NOT NULL,
    first_nos   bigint[]      NOT NULL,
    lasts       timestamptz[] NOT NULL,
    last_nos    bigint[]      NOT NULL,
    due_at      timestamptz              -- of jobs that are not due yet, when the first will be
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
ALTER TABLE arrival
    ALTER COLUMN lane_ids SET STORAGE EXTERNAL,
    ALTER COLUMN firsts SET STORAGE EXTERNAL,
    ALTER COLUMN first_nos SET STORAGE EXTERNAL,
    ALTER COLUMN lasts SET STORAGE EXTERNAL,
    ALTER COLUMN last_nos SET STORAGE EXTERNAL;
CREATE INDEX arrival_by_xid ON arrival (xid);

-- Names are kept while they are used. A lane is not removed before it is `retired`, nor before the
-- roll-ups have seen the transaction that retired it; submitters note now and then that they use it.
-- After two thousand million lanes their numbers begin anew; those in use are passed over.
ALTER SEQUENCE lane_id_seq CYCLE;
ALTER TABLE lane ADD COLUMN used_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE lane ADD COLUMN retired xid8;
ALTER TABLE namespace ADD COLUMN retired_at timestamptz;
-- Whoever makes lanes locks their names, once and not for each of them, and whoever removes names
-- looks again for lanes under a lock.
ALTER TABLE lane DROP CONSTRAINT lane_namespace_id_fkey, DROP CONSTRAINT lane_type_id_fkey;
