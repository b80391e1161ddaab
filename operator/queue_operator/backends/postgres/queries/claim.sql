-- Takes the oldest due jobs of some lanes for streams that all ask for the same, as most claims
-- do: `claim_many.sql` in short. Gives each a lease with a new token. One row at least: the first
-- begins with how many jobs were looked at and whether more may be there than were looked at, then of
-- the ranges, as in `claim_left.sql`; the rest of a row is NULL if nothing was taken.
-- Parameters: ranges, numbered from 1: lanes (int[]), froms (timestamptz[]) and from_nos
--   (bigint[]), tos and to_nos, both ends included; bound (timestamptz) and bound_no: only jobs
--   before that place are taken; per_lane: how many to look at in each range; reach: how many to
--   look at in all; slots: how many to take; slot_of (int[], as long as slots): which stream the
--   n-th job goes to; chances (bigint[], as long): the random half of its token; and those of
--   `claim_leases.sql`, whose lanes are lane_ids (int[], ascending).
-- Index: ready_claim, once per range; job_pkey; parent_result_pkey; checkpoint_pkey.
-- Locks: the rows taken; rows another claimer holds are skipped, so a claim may come back with fewer
--   than it looked at.
-- Traps: looking at a range must stop at its limit, hence the LATERAL; the ranges keep it from
--   walking the dead entries of rows taken before. Where a range may hold more than was looked
--   at, nothing beyond its last one seen is taken, or a younger job would pass an older one; nor
--   beyond the bound, where a lane that is not asked may hold one.
--   Two CTEs are never joined with each other: without hash joins that would take the square
--   of the batch. Rows are locked and deleted by their place in the table (ctid): what our
--   snapshot sees stays where it is, and a row that moved all the same is not deleted, hence
--   not taken. A plain order to lock them in, or a plain `due`, would let a plan made while the
--   table was empty walk a whole index instead; nobody waits for a lock here.
WITH seen AS MATERIALIZED (
    SELECT r.spot, r.job_no, r.order_time, r.place, g.n
    FROM unnest(%(lanes)s::int[], %(froms)s::timestamptz[], %(from_nos)s::bigint[],
                %(tos)s::timestamptz[], %(to_nos)s::bigint[])
        WITH ORDINALITY AS g(lane_id, at, no, to_at, to_no, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = g.lane_id AND (order_time, job_no) >= (g.at, g.no)
          AND (order_time, job_no) <= (g.to_at, g.to_no)
        ORDER BY order_time, job_no LIMIT %(per_lane)s
    ) r
), heads AS MATERIALIZED (
    SELECT spot FROM seen
    WHERE ((order_time, job_no) <= (
        SELECT order_time, job_no FROM seen WHERE place = %(per_lane)s
        ORDER BY order_time, job_no LIMIT 1
    )) IS NOT FALSE
      AND (order_time, job_no) < (%(bound)s::timestamptz, %(bound_no)s::bigint)
    ORDER BY order_time, job_no LIMIT %(reach)s
), locked AS MATERIALIZED (
    SELECT ctid AS spot FROM ready
    WHERE ctid = ANY (ARRAY(SELECT spot FROM heads)) AND coalesce(due, false)
    ORDER BY order_time + interval '0', job_no LIMIT %(slots)s
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT spot FROM locked))
    RETURNING *
), dealt AS (
    SELECT removed.*,
           ((SELECT %(slot_of)s::int[]))[row_number() OVER (ORDER BY order_time, job_no)] AS stream_at,
           ((SELECT %(chances)s::bigint[]))[
               row_number() OVER (ORDER BY order_time, job_no)] AS chance,
           width_bucket(lane_id, (SELECT %(lane_ids)s::int[])) AS lane_at
    FROM removed
), {{leases}}, {{left}}
SELECT NULL, looked.jobs, looked.cut_off,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT numbers FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT looked FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT nexts FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT next_nos FROM told_ranges) END,
       r.*
FROM (
    SELECT (SELECT count(*) FROM heads) AS jobs,
           EXISTS (SELECT FROM seen
                   WHERE place = %(per_lane)s
                      OR (order_time, job_no) >= (%(bound)s::timestamptz, %(bound_no)s::bigint)
           ) AS cut_off
) looked
LEFT JOIN (
    {{jobs}}
) r ON true
