-- Ends that a release which knows of no messages writes while this one is brought in: it leaves the
-- default. Whoever writes a message for each callback says NULL, as rows from before have it.
-- Nothing but the row of an end has a meaning here.
ALTER TABLE job_event ADD COLUMN untold boolean;
ALTER TABLE job_event ALTER COLUMN untold SET DEFAULT true;
