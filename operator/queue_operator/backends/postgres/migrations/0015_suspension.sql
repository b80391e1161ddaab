-- Jobs that were ever suspended, whether they are so now, and since when. The row is the job's for as
-- long as it is stored: what runs, or has ended, is suspended when it waits again.
CREATE TABLE suspension (
    job_no     bigint      PRIMARY KEY,
    is_on      boolean     NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
-- True: it waits for other jobs. NULL: for nobody but who resumes it, and is not due; so no index
-- of what is claimed or becomes due has it. Else false.
-- An older release leaves such rows alone, but knows nothing of `suspension`: where it sends a job
-- back to wait, or ends a wait for parents, the job may be claimed although it is suspended.
ALTER TABLE ready ALTER COLUMN blocked DROP NOT NULL;
