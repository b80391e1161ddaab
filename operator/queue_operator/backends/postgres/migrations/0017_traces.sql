-- The span that the runs of a job are linked to, as W3C Trace Context writes it; NULL for a job that
-- belongs to no trace.
-- An older release neither writes nor reads them: what it stores, and what it gives to a worker, belongs
-- to no trace.
ALTER TABLE job ADD COLUMN traceparent text;
ALTER TABLE job ADD COLUMN tracestate text;
