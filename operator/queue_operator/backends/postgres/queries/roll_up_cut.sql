-- How far one step of rolling up may go: the time, and the current snapshot; the transaction up to
-- which rows are taken, NULL where that is all of them; and how many there are.
-- Parameters: first_xid (xid8): from there on nothing was seen; open_xids (xid8[]): nor these;
--   above_seq: what came with a dump is not above it; max_rows, and max_bytes of job numbers.
-- Index: job_event_by_xid twice. Locks: none.
-- Traps: a transaction is taken whole, so the last one may be above the limits. A plain seq would
--   let the primary key be walked instead.
WITH behind AS MATERIALIZED (
    SELECT xid, pg_column_size(job_nos) AS bytes FROM job_event
    WHERE xid >= %(first_xid)s::xid8 AND xid < pg_snapshot_xmax(pg_current_snapshot())
      AND seq + 0 > %(above_seq)s
    ORDER BY xid LIMIT %(max_rows)s + 1
), weighed AS MATERIALIZED (
    SELECT xid, row_number() OVER before_it AS place,
           coalesce(sum(bytes) OVER before_it, 0) AS bytes
    FROM behind
    WINDOW before_it AS (ORDER BY xid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), beyond AS (
    SELECT FROM weighed WHERE place > %(max_rows)s OR bytes > %(max_bytes)s LIMIT 1
)
SELECT now(), pg_current_snapshot()::text,
       (SELECT xid::text FROM weighed
        WHERE place <= %(max_rows)s AND bytes <= %(max_bytes)s AND EXISTS (SELECT FROM beyond)
        ORDER BY xid DESC LIMIT 1),
       (SELECT count(*) FROM behind)
       + (SELECT count(*) FROM job_event
          WHERE xid = ANY (%(open_xids)s::xid8[]) AND seq + 0 > %(above_seq)s)
