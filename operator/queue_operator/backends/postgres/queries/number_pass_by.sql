-- Draws all blocks of job numbers up to that of the highest stored job.
-- Parameters: block (how many numbers a block has). Index: job_pkey. Locks: none.
-- Trap: drawn from, not set: setting a sequence needs more than the right to use it.
WITH drawn AS MATERIALIZED (SELECT nextval('job_no_block') AS block)
SELECT nextval('job_no_block')
FROM drawn, generate_series(drawn.block, (SELECT max(job_no) / %(block)s FROM job))
