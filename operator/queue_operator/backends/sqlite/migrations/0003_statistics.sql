-- What happened in spans of time: counts and histograms, as JSON.
CREATE TABLE tally (
    namespace TEXT    NOT NULL,
    span_s    INTEGER NOT NULL,
    begins_at INTEGER NOT NULL,
    type      TEXT    NOT NULL,
    priority  TEXT    NOT NULL,
    record    TEXT    NOT NULL,
    PRIMARY KEY (namespace, span_s, begins_at, type, priority)
) WITHOUT ROWID;
CREATE INDEX tally_by_age ON tally (span_s, begins_at);

-- Jobs that have not ended, for counting them without a look at their rows.
CREATE INDEX job_standing ON job (namespace, type, priority, state, waiting, eligible_at)
    WHERE state IN ({{eligible}}, {{slot_holding}});

-- What may still be taken, and since when that holds.
CREATE TABLE token_bucket (
    name      TEXT    PRIMARY KEY,
    tokens    REAL    NOT NULL,
    filled_at INTEGER NOT NULL
) WITHOUT ROWID;
