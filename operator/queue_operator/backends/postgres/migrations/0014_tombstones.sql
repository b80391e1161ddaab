-- Jobs of custom resources that were deleted. Their resource may still be there, or come back from
-- a backup, and must not be run again: its status gets the end that the job had.
CREATE TABLE tombstone (
    uid          text        PRIMARY KEY,
    state        text        NOT NULL CHECK (state IN ({{terminal}})),
    permanent    boolean     NOT NULL,
    transition   integer     NOT NULL,
    attempt      integer     NOT NULL,
    created_at   timestamptz NOT NULL,
    finalized_at timestamptz NOT NULL,
    deleted_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tombstone_by_age ON tombstone (deleted_at);
