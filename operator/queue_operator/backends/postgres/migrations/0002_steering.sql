-- What is not to be claimed: the jobs of a namespace, or only those of one type ('': all).
CREATE TABLE pause (
    namespace text        NOT NULL,
    type      text        NOT NULL,
    reason    text        NOT NULL,
    paused_by text        NOT NULL,
    since     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, type)
);

-- Who is to be told of a job's end, of the jobs for which somebody is.
CREATE TABLE callback (
    job_no bigint PRIMARY KEY,
    url    text   NOT NULL
);
