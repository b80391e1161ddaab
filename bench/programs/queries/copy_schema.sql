-- As little as a durable list of jobs can be.
CREATE TABLE bare_job (id text PRIMARY KEY, payload bytea NOT NULL);
