-- Holds parents in their state until their children are stored: gives the numbers of those that
-- may still spawn under the given tokens.
-- Parameters, aligned by position, ascending, none twice: job_nos (bigint[]), tokens (uuid[]).
-- Index: the primary keys of lease and ready. Locks: the rows found, in order of number, against
--   being moved only: heartbeats go on, and so does a cancel, which then came after the children.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_nos)s::bigint[], %(tokens)s::uuid[]) AS g(job_no, token)
), leased AS MATERIALIZED (
    SELECT held.job_no FROM given CROSS JOIN LATERAL (
        SELECT job_no FROM lease
        WHERE lease.job_no = given.job_no AND lease.token = given.token
          AND lease.state IN ({{RUNNING}})
        FOR KEY SHARE
    ) held
), lost AS MATERIALIZED (
    SELECT held.job_no FROM given CROSS JOIN LATERAL (
        SELECT job_no FROM ready
        WHERE ready.job_no = given.job_no AND ready.token = given.token
          AND ready.state IN ({{UNKNOWN_RETRY}})
        FOR KEY SHARE
    ) held
)
SELECT job_no FROM leased UNION ALL SELECT job_no FROM lost
