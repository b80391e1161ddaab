-- The submitted half of jobs; `traced`: the names of two more columns, where a job belongs to a
-- trace. Format: binary. Locks: the new rows.
-- Trap: an id that exists ends the transaction; the caller then looks for it with `submit.sql`.
COPY job (job_no, namespace_id, id, lane_id, payload, content_type, created_at, correlation_id{{traced}})
FROM STDIN (FORMAT BINARY)
