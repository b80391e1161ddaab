-- When the error of a job was told, which a manual retry does not change. NULL where there is none,
-- and in rows that an older release wrote: there it is the time of the last change.
-- The indexes for it come with `0006_indexes`.
ALTER TABLE ready ADD COLUMN failed_at timestamptz;
ALTER TABLE lease ADD COLUMN failed_at timestamptz;
ALTER TABLE final ADD COLUMN failed_at timestamptz;
