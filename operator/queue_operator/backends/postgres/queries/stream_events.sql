-- What a part of the log tells of jobs, one row for each, in the order of transactions, of rows and of
-- jobs in them: of all jobs of some lanes, and of some jobs by number.
-- Parameters: those of {{fresh}}; lanes (int[]), numbers (bigint[]).
-- Index: those of the part; job_pkey; of new jobs ready_pkey. Locks: none.
-- Traps: what is not wanted is left out before anything is looked up. A job that was deleted since
--   has an id only where it is told of its submission. OFFSET 0 keeps the planner from starting at
--   the jobs.
WITH fresh AS MATERIALIZED (
{{fresh}}
), each AS MATERIALIZED (
    SELECT xid, seq, place, at, event, to_state, job_no, attempt, id,
           CASE WHEN event = 'SUBMIT' THEN fresh.lane_ids[lane + 1] ELSE lane END AS lane_id,
           category
    FROM fresh
    CROSS JOIN LATERAL unnest(
        job_nos, attempts, ids, CASE WHEN event = 'SUBMIT' THEN lane_of ELSE lane_ids END,
        CASE WHEN to_state IN ({{DEAD_LETTER}}) THEN ARRAY(
            SELECT f ->> 'category'
            FROM jsonb_array_elements(failed) WITH ORDINALITY AS e(f, n) ORDER BY n
        ) END
    ) WITH ORDINALITY AS told(job_no, attempt, id, lane, category, place)
    WHERE lane_ids IS NOT NULL
), wanted AS MATERIALIZED (
    SELECT * FROM each
    WHERE lane_id IN (SELECT unnest(%(lanes)s::int[]))
       OR job_no IN (SELECT unnest(%(numbers)s::bigint[]))
)
SELECT wanted.xid::text::bigint, wanted.seq, wanted.place::int, wanted.at, wanted.event,
       wanted.to_state, wanted.job_no, coalesce(wanted.attempt, 0), wanted.lane_id,
       wanted.category, coalesce(wanted.id, found.id, ''), coalesce(waiting.blocked, false),
       coalesce(waiting.is_later, false)
FROM wanted
LEFT JOIN LATERAL (
    SELECT job.id FROM job WHERE job.job_no = wanted.job_no AND wanted.id IS NULL OFFSET 0
) AS found ON true
LEFT JOIN LATERAL (
    SELECT blocked IS TRUE AS blocked, eligible_at > now() AS is_later FROM ready
    WHERE ready.job_no = wanted.job_no AND wanted.event = 'SUBMIT'
      AND ready.state IN ({{INITIAL_PENDING}}) OFFSET 0
) AS waiting ON true
ORDER BY wanted.xid, wanted.seq, wanted.place
