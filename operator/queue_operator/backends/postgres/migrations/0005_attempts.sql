-- When the job was due of which this is an attempt: of the first one, what the job first waited
-- for, which a retry changes in its own row. NULL in rows that an older release wrote.
ALTER TABLE attempt ADD COLUMN eligible_at timestamptz;
