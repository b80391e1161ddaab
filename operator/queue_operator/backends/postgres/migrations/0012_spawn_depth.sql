-- How many spawns lie between a job and one that came from outside. Of children that an older release
-- stored nobody counted: they begin anew.
ALTER TABLE spawned ADD COLUMN depth integer NOT NULL DEFAULT 1;
