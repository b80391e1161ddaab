-- Workers whose sessions broke without a goodbye; kept for some minutes.
CREATE TABLE lost_worker (
    session_id  TEXT    PRIMARY KEY,
    namespace   TEXT    NOT NULL,
    worker_name TEXT    NOT NULL,
    lost_at     INTEGER NOT NULL,
    record      TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX lost_worker_name ON lost_worker (namespace, worker_name);
