-- Takes what is due out of `lease_check`, oldest first, and gives what of it has to be done: one
-- row with the marks up to which each kind is done now, whether there is more, the snapshot of
-- this statement, and, aligned, kinds, leases and numbers. A lease has run out if no row of a
-- higher number renews it. The progress of leases that are gone is removed.
-- Parameters, by kind: kinds (text[]), marks (timestamptz[], NULL: from the beginning) and untils
--   (timestamptz[]); seen: the snapshot of the statement before, text, NULL: none; ended_before:
--   where those of leases end, NULL if they are not asked for; cancel_before: when a cancel that is
--   overdue was asked for, at the latest; and of each kind at most max_rows rows and max_bytes bytes.
-- Index: lease_check_due, a range per kind; lease_check_fresh; lease_pkey, progress_pkey,
--   ready_pkey.
-- Locks: the rows taken, which nobody else touches.
-- Traps: two CTEs are never joined, since without hash joins that takes the square of the batch:
--   a set that IS TRUE is hashed. A row committed after the mark had passed by it is one that the
--   last snapshot did not see. A row beyond the limit may name a lease again, and does no harm:
--   if it is due, the lease has run out all the same, and if it is not, it is read here.
--   OFFSET 0 keeps a condition on the state from choosing an index that would be walked whole. In a
--   restored copy rows may name transactions that are to come: they are found by their time.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(kinds)s::text[], %(marks)s::timestamptz[], %(untils)s::timestamptz[])
        WITH ORDINALITY AS a(kind, mark, until, place)
), first AS MATERIALIZED (
    SELECT asked.place, r.spot, r.look_at, r.fits
    FROM asked CROSS JOIN LATERAL (
        SELECT spot, look_at,
               sum(bytes) OVER (ORDER BY look_at ROWS UNBOUNDED PRECEDING) - bytes
                   < %(max_bytes)s::bigint AS fits
        FROM (
            SELECT ctid AS spot, look_at, pg_column_size(leases) AS bytes
            FROM lease_check
            WHERE lease_check.kind = asked.kind AND look_at < asked.until
              AND look_at >= coalesce(asked.mark, '-infinity')
            ORDER BY look_at LIMIT %(max_rows)s::bigint
        ) due
    ) r
), fresh AS MATERIALIZED (
    SELECT ctid AS spot, look_at, array_position(%(kinds)s::text[], kind) AS place
    FROM lease_check
    WHERE xid >= pg_snapshot_xmax(%(seen)s::pg_snapshot)
      AND xid < pg_snapshot_xmax(pg_current_snapshot())
    UNION ALL
    SELECT ctid, look_at, array_position(%(kinds)s::text[], kind)
    FROM lease_check WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(%(seen)s::pg_snapshot)))
), taken AS MATERIALIZED (
    DELETE FROM lease_check
    WHERE ctid = ANY (ARRAY(
        SELECT spot FROM first WHERE fits
        UNION ALL
        SELECT spot FROM fresh
        WHERE look_at < ((SELECT %(marks)s::timestamptz[]))[place]
          AND look_at < ((SELECT %(untils)s::timestamptz[]))[place]
    ))
    RETURNING kind, number, leases
), due AS MATERIALIZED (
    SELECT kind, number, unnest(leases) AS lease FROM taken
), run_out AS MATERIALIZED (
    SELECT lease, max(number) AS number
    FROM (
        SELECT lease, number, true AS is_due FROM due WHERE kind IN ('CLAIM', 'RENEWAL')
        UNION ALL
        SELECT unnest(leases), number, false FROM lease_check
        WHERE kind = 'RENEWAL' AND look_at >= %(ended_before)s
          AND EXISTS (SELECT FROM due WHERE kind IN ('CLAIM', 'RENEWAL'))
    ) named
    GROUP BY lease HAVING max(number) FILTER (WHERE is_due) = max(number)
), standing AS MATERIALIZED (
    SELECT (job_no << 16) | (lease_version & 65535) AS lease, state IN ({{CANCELLING}})
               AND (cancel_forced OR NOT cancel_received)
               AND cancel_requested_at < %(cancel_before)s AS is_unanswered
    FROM lease
    WHERE job_no = ANY (ARRAY(
        SELECT lease >> 16 FROM run_out
        UNION ALL
        SELECT lease >> 16 FROM due WHERE kind IN ('DEADLINE', 'HELD', 'CANCEL', 'PROGRESS')
    ))
), forgotten AS (
    DELETE FROM progress
    WHERE lease = ANY (ARRAY(
        SELECT lease FROM due
        WHERE kind = 'PROGRESS' AND (lease IN (SELECT lease FROM standing)) IS NOT TRUE
    ))
), given_up AS MATERIALIZED (
    SELECT (job_no << 16) | (lease_version & 65535) AS lease
    FROM (
        SELECT * FROM ready
        WHERE job_no = ANY (ARRAY(SELECT lease >> 16 FROM due WHERE kind = 'EXHAUST'))
        OFFSET 0
    ) waiting
    WHERE state IN ({{UNKNOWN_RETRY}}) AND max_attempts > 0 AND attempt >= max_attempts
), found AS MATERIALIZED (
    SELECT 'CLAIM' AS kind, lease, number FROM run_out
    WHERE (lease IN (SELECT lease FROM standing)) IS TRUE
    UNION ALL
    SELECT kind, lease, number FROM due
    WHERE kind IN ('DEADLINE', 'HELD', 'PROGRESS') AND (lease IN (SELECT lease FROM standing)) IS TRUE
    UNION ALL
    SELECT kind, lease, number FROM due
    WHERE kind = 'CANCEL'
      AND (lease IN (SELECT lease FROM standing WHERE is_unanswered)) IS TRUE
    UNION ALL
    SELECT kind, lease, number FROM due
    WHERE kind = 'EXHAUST' AND (lease IN (SELECT lease FROM given_up)) IS TRUE
), ends AS MATERIALIZED (
    SELECT place, max(look_at) FILTER (WHERE fits) AS last,
           count(*) = %(max_rows)s::bigint OR NOT bool_and(fits) AS is_cut
    FROM first GROUP BY place
)
SELECT ARRAY(
           SELECT coalesce((SELECT last FROM ends WHERE ends.place = asked.place AND is_cut),
                           asked.until)
           FROM asked ORDER BY place),
       (SELECT coalesce(bool_or(is_cut), false) FROM ends), pg_current_snapshot()::text,
       ARRAY(SELECT kind FROM found), ARRAY(SELECT lease FROM found),
       ARRAY(SELECT number FROM found)
