-- The table of all tasks, made on first use.
-- Times are UTC text with microseconds, which sorts like time. payload and value are TEXT for
-- JSON and BLOB for bytes, hence no type that would convert them. seq is the order of coming.
CREATE TABLE IF NOT EXISTS tasks (
    seq INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL CHECK (status IN ('pending', 'in_progress', 'success', 'failure')),
    payload BLOB NOT NULL,
    available_at TEXT NOT NULL,
    enqueued_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    value BLOB,
    error TEXT,
    traceback TEXT,
    CHECK ((status = 'pending') = (started_at IS NULL)),
    CHECK ((status IN ('success', 'failure')) = (finished_at IS NOT NULL)),
    CHECK ((status = 'success') = (value IS NOT NULL)),
    CHECK ((status = 'failure') = (error IS NOT NULL AND traceback IS NOT NULL))
)
