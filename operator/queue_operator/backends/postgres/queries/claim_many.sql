-- Takes the oldest due jobs for some groups of streams and gives each a lease with a new token.
-- The streams of a group ask for the same lanes; no lane is in two groups. One row at least: the
-- first begins with which groups' jobs were looked at, how many of each, and in which groups more may
-- be there than were looked at; then, of the ranges, as in `claim_left.sql`; the rest of it is NULL if
-- nothing was taken.
-- Parameters: ranges, as in `claim.sql`, and how many to look at in each: depths (int[]); groups being
--   numbered from 1, of which group each is: range_groups (int[]). By group: reaches, how many to
--   look at; bounds (timestamptz[]) and bound_nos (bigint[]): only jobs before that place are taken;
--   offsets (int[]): where its part of slot_of begins. most: how many to take in all; only of
--   one group alone may more be looked at than it has room for. slot_of (int[], as long
--   as all rooms): which stream the n-th job of a group goes to; chances (bigint[], as long): the
--   random half of its token; and those of `claim_leases.sql`, whose lanes are lane_ids (int[],
--   ascending), and of which group each is: lane_groups (int[]).
-- Index: ready_claim, once per range; job_pkey; parent_result_pkey; checkpoint_pkey.
-- Locks: the rows taken; rows another claimer holds are skipped, so a claim may come back with fewer
--   than it looked at.
-- Traps: as in `claim.sql`.
--   What was looked at is told with the first job: the client would unpack it again with each.
WITH seen AS MATERIALIZED (
    SELECT r.spot, r.job_no, r.order_time, r.place, l.n, l.g, r.place = l.depth AS is_last
    FROM unnest(%(lanes)s::int[], %(froms)s::timestamptz[], %(from_nos)s::bigint[],
                %(tos)s::timestamptz[], %(to_nos)s::bigint[], %(range_groups)s::int[],
                %(depths)s::int[])
        WITH ORDINALITY AS l(lane_id, at, no, to_at, to_no, g, depth, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS spot, job_no, order_time, row_number() OVER (ORDER BY order_time, job_no) AS place
        FROM ready
        WHERE due AND lane_id = l.lane_id AND (order_time, job_no) >= (l.at, l.no)
          AND (order_time, job_no) <= (l.to_at, l.to_no)
        ORDER BY order_time, job_no LIMIT l.depth
    ) r
), ranked AS MATERIALIZED (
    SELECT spot, g, is_last, row_number() OVER in_order AS place,
           count(*) FILTER (WHERE is_last) OVER in_order AS ended,
           (order_time, job_no) < (((SELECT %(bounds)s::timestamptz[]))[g],
                                   ((SELECT %(bound_nos)s::bigint[]))[g]) AS is_near
    FROM seen
    WINDOW in_order AS (PARTITION BY g ORDER BY order_time, job_no ROWS UNBOUNDED PRECEDING)
), heads AS MATERIALIZED (
    SELECT spot, g FROM ranked
    WHERE is_near AND ended <= is_last::int AND place <= ((SELECT %(reaches)s::int[]))[g]
), locked AS MATERIALIZED (
    SELECT ctid AS spot FROM ready
    WHERE ctid = ANY (ARRAY(SELECT spot FROM heads)) AND coalesce(due, false)
    ORDER BY order_time + interval '0', job_no LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
), looked AS MATERIALIZED (
    SELECT g, count(*)::int AS jobs FROM heads GROUP BY g
), removed AS (
    DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT spot FROM locked))
    RETURNING *
), dealt AS (
    SELECT placed.*,
           ((SELECT %(slot_of)s::int[]))[((SELECT %(offsets)s::int[]))[g] + place] AS stream_at,
           ((SELECT %(chances)s::bigint[]))[((SELECT %(offsets)s::int[]))[g] + place] AS chance
    FROM (
        SELECT found.*, row_number() OVER (PARTITION BY g ORDER BY order_time, job_no) AS place
        FROM (
            SELECT known.*, ((SELECT %(lane_groups)s::int[]))[lane_at] AS g
            FROM (
                SELECT *, width_bucket(lane_id, (SELECT %(lane_ids)s::int[])) AS lane_at
                FROM removed
            ) known
        ) found
    ) placed
), {{leases}}, {{left}}
SELECT CASE WHEN r.nth > 1 THEN NULL ELSE ARRAY(SELECT g FROM looked ORDER BY g) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE ARRAY(SELECT jobs FROM looked ORDER BY g) END,
       CASE WHEN r.nth > 1 THEN NULL
            ELSE ARRAY(SELECT DISTINCT g FROM ranked WHERE is_last OR NOT is_near) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT numbers FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT looked FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT nexts FROM told_ranges) END,
       CASE WHEN r.nth > 1 THEN NULL ELSE (SELECT next_nos FROM told_ranges) END,
       r.*
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (
    {{jobs}}
) r ON true
