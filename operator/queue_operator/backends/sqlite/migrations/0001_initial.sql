-- One row per job: what is looked for in columns, all else in the record (JSON). Times are in
-- microseconds since 1970. `claimable` says that nothing but time keeps the job waiting;
-- `category` and `code` are those of its error.
CREATE TABLE job (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace    TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    state        TEXT    NOT NULL
                 CHECK (state IN ({{eligible}}, {{slot_holding}}, {{terminal}})),
    priority     TEXT    NOT NULL,
    place        INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    eligible_at  INTEGER NOT NULL,
    finalized_at INTEGER,
    claimable    INTEGER NOT NULL,
    used_up      INTEGER NOT NULL,
    waiting      INTEGER NOT NULL,
    category     TEXT,
    code         TEXT,
    retries      INTEGER NOT NULL,
    record       TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    result       BLOB,
    inherited    BLOB,
    checkpoint   BLOB,
    UNIQUE (namespace, id)
);
-- With what a claim filters on, so that jobs it passes over cost no look at their row.
CREATE INDEX job_claim ON job (namespace, place, number, eligible_at, type) WHERE claimable = 1;
CREATE INDEX job_due ON job (eligible_at, namespace, type) WHERE claimable = 1;
CREATE INDEX job_count ON job (namespace, type, state, retries);
CREATE INDEX job_created ON job (namespace, created_at, number);
CREATE INDEX job_updated ON job (namespace, updated_at, number);
CREATE INDEX job_failed ON job (namespace, updated_at, number)
    WHERE state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) AND category IS NOT NULL;
CREATE INDEX job_leased ON job (number) WHERE state IN ({{slot_holding}});
CREATE INDEX job_used_up ON job (eligible_at) WHERE used_up = 1 AND state IN ({{UNKNOWN_RETRY}});
CREATE INDEX job_completed ON job (finalized_at) WHERE state IN ({{COMPLETED}});

CREATE TABLE job_tag (
    namespace TEXT    NOT NULL,
    tag       TEXT    NOT NULL,
    number    INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
    PRIMARY KEY (namespace, tag, number)
) WITHOUT ROWID;
CREATE INDEX job_tag_by_job ON job_tag (number, tag);

-- A parent may be gone while its children are stored.
CREATE TABLE edge (
    parent INTEGER NOT NULL,
    child  INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
CREATE INDEX edge_by_child ON edge (child);

CREATE TABLE idempotency (
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    job_id    TEXT NOT NULL,
    digest    BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_job ON idempotency (namespace, job_id);

CREATE TABLE event (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    record TEXT NOT NULL
);

-- What handlers logged: `version` is that of the lease, `line` its number within the attempt.
CREATE TABLE log_line (
    number  INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
    version INTEGER NOT NULL,
    line    INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    record  TEXT    NOT NULL,
    PRIMARY KEY (number, version, line)
) WITHOUT ROWID;

CREATE TABLE sweep (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    swept_at   INTEGER,
    resumed_at INTEGER
);
INSERT INTO sweep VALUES (1, NULL, NULL);

CREATE TABLE signal (
    topic   TEXT    PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE session (
    session_id   TEXT    PRIMARY KEY,
    heartbeat_at INTEGER NOT NULL,
    record       TEXT    NOT NULL
) WITHOUT ROWID;
