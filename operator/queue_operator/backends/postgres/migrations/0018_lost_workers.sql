-- Workers whose sessions broke without a goodbye: for some minutes whoever watches the queue is told
-- so. Nothing is decided by it. An older release writes none, and a worker that comes back to it stays
-- lost until it is forgotten.
CREATE TABLE lost_worker (
    session_id  text PRIMARY KEY,
    namespace   text        NOT NULL,
    worker_name text        NOT NULL,
    host        text        NOT NULL,
    version     text        NOT NULL,
    types       text[]      NOT NULL,
    capacity    integer     NOT NULL,
    jobs        integer     NOT NULL,  -- that were taken from it
    lost_at     timestamptz NOT NULL
);
CREATE INDEX lost_worker_name ON lost_worker (namespace, worker_name);
CREATE INDEX lost_worker_newest ON lost_worker (namespace, lost_at);
