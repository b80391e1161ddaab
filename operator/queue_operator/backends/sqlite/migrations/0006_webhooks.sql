-- Messages about jobs that have ended: what is looked for in columns, all in the record (JSON). Times
-- are in microseconds since 1970. `next_at` is when one may be told (again), NULL where it is told no
-- more; `held` says that somebody tells it, or died over it.
CREATE TABLE message (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT    NOT NULL,
    job_id    TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    receiver  TEXT    NOT NULL,
    next_at   INTEGER,
    last_at   INTEGER,
    held      INTEGER NOT NULL,
    record    TEXT    NOT NULL
);
CREATE INDEX message_due ON message (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX message_listed ON message (namespace, state, number);
CREATE INDEX message_by_job ON message (job_id, number);
CREATE INDEX message_ended ON message (state, last_at) WHERE last_at IS NOT NULL;
