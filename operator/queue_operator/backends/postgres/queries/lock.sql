-- Locks the moving rows of some jobs and tells what is needed to decide about them.
-- Parameters: job_nos (bigint[]), tokens (uuid[], of the outcomes; NULL where none was given).
-- Index: the primary keys. Locks: the rows found, table by table in order of number.
-- Traps: a row that moves while we wait for it is found in none of the tables; the caller
--   asks again, and then sees where it went. The attempts are those of the statement's start:
--   of what happens to a row in its place, only a late completion ends an attempt, and that
--   one is read from the row itself, as if it had come with the token. It is also all that tells
--   of an attempt without a row.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_nos)s::bigint[], %(tokens)s::uuid[]) AS g(job_no, given_token)
    ORDER BY job_no
), in_lease AS MATERIALIZED (
    SELECT given.given_token, lease.job_no, lease.lane_id, lease.state, lease.token,
           lease.attempt, lease.max_attempts, lease.failure_count, lease.backoff,
           lease.assignee_id, lease.has_children, lease.cancel_forced, lease.cancel_reason,
           ''::text AS reason, lease.lease_version
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM lease WHERE lease.job_no = given.job_no FOR UPDATE
    ) lease
), in_ready AS MATERIALIZED (
    SELECT given.given_token, ready.job_no, ready.lane_id, ready.state, ready.token,
           ready.attempt, ready.max_attempts, ready.failure_count, ready.backoff,
           ready.assignee_id, ready.has_children, false AS cancel_forced, ''::text, ''::text AS reason,
           ready.lease_version
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM ready WHERE ready.job_no = given.job_no FOR UPDATE
    ) ready
), in_final AS MATERIALIZED (
    SELECT given.given_token, final.job_no, final.lane_id, final.state, final.token,
           final.attempt, final.max_attempts, final.failure_count, final.backoff,
           final.assignee_id, final.has_children, false AS cancel_forced, ''::text, final.reason,
           final.lease_version
    FROM given CROSS JOIN LATERAL (
        SELECT * FROM final WHERE final.job_no = given.job_no FOR UPDATE
    ) final
), found AS (
    SELECT * FROM in_lease UNION ALL SELECT * FROM in_ready UNION ALL SELECT * FROM in_final
)
SELECT found.job_no, found.lane_id, found.state, found.token::text, found.attempt,
       found.max_attempts, found.failure_count, found.backoff, found.assignee_id,
       found.cancel_forced, found.cancel_reason, found.reason, found.has_children, job.id,
       namespace.name AS namespace, lane.priority,
       CASE WHEN late.completed THEN 'COMPLETE'
            WHEN NOT coalesce(ended.unfenced, false) THEN ended.event END AS recorded,
       CASE WHEN late.completed THEN found.state
            WHEN NOT coalesce(ended.unfenced, false) THEN ended.state END AS recorded_state,
       coalesce(before.event = 'LOSE', false) AS lost_before
FROM found
CROSS JOIN LATERAL (SELECT * FROM job WHERE job.job_no = found.job_no LIMIT 1) job
JOIN namespace ON namespace.id = job.namespace_id
JOIN lane ON lane.id = found.lane_id
LEFT JOIN LATERAL (
    SELECT event, state, unfenced FROM attempt
    WHERE attempt.job_no = found.job_no AND attempt.token = found.given_token LIMIT 1
) ended ON true
CROSS JOIN LATERAL (
    -- Unless the attempt tells that somebody completed it without the token.
    SELECT found.state IN ({{COMPLETED}}) AND found.token = found.given_token
           AND NOT (ended.unfenced AND ended.state IN ({{COMPLETED}})) IS TRUE AS completed
) late
LEFT JOIN LATERAL (
    -- Attempts that did not count are passed over: the one after them has their number.
    SELECT event FROM attempt
    WHERE found.state IN ({{RUNNING}}) AND attempt.job_no = found.job_no
      AND attempt.version < found.lease_version AND attempt.number < found.attempt
    ORDER BY attempt.version DESC LIMIT 1
) before ON true
