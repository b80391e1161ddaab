-- The newest change of each job among the oldest changes: (job_no, sequence), the job that
-- waits longest first. Parameters: limit integer, in changes.
-- Index: mirror_outbox's and detached's primary keys. Locks: the rows it deletes.
-- Deletes the older changes of the same jobs that this very read saw, and all of resources
-- that are gone: neither may fill the window and hide others, and what became visible since
-- stays. A snapshot can show a later sequence and not yet an earlier one; therefore nothing
-- is deleted by "up to this sequence".
-- Trap: without OFFSET 0 all of `detached` is read and hashed.
WITH oldest AS (
    SELECT sequence, job_no,
           EXISTS (
               SELECT FROM detached WHERE detached.job_no = mirror_outbox.job_no OFFSET 0
           ) AS gone,
           max(sequence) OVER (PARTITION BY job_no) AS newest,
           min(sequence) OVER (PARTITION BY job_no) AS since
    FROM (SELECT sequence, job_no FROM mirror_outbox ORDER BY sequence LIMIT %(limit)s)
        AS mirror_outbox
),
dropped AS (
    DELETE FROM mirror_outbox
    WHERE sequence = ANY (ARRAY (SELECT sequence FROM oldest WHERE gone OR sequence < newest))
)
SELECT job_no, sequence
FROM oldest
WHERE sequence = newest AND NOT gone
ORDER BY since
