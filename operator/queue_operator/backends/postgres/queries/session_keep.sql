-- Heartbeats of all sessions of a replica that were not ended, if they are those that it has open
-- and have no order beyond the one followed. Gives one row: whether they were.
-- Parameters: replica; count and mark, as SessionRoll has them; kept_for_s: what is silent for longer
--   is not looked at.
-- No index: the table has a row per connected worker process. The updates stay within their pages.
-- Locks: the rows in the order of their ids, as session_touch takes them.
WITH mine AS MATERIALIZED (
    SELECT session_id,
           ('x' || left(encode(sha256(convert_to(connection, 'UTF8')), 'hex'), 12))
               ::bit(48)::bigint AS mark
    FROM worker_session
    WHERE replica = %(replica)s AND NOT ended AND followed = order_number
      AND heartbeat_at > now() - make_interval(secs => %(kept_for_s)s)
    ORDER BY session_id
    FOR NO KEY UPDATE
),
kept AS (
    UPDATE worker_session SET heartbeat_at = now()
    WHERE session_id = ANY (ARRAY (SELECT session_id FROM mine))
      AND (SELECT count(*) = %(count)s AND sum(mark) = %(mark)s FROM mine)
    RETURNING 1
)
SELECT count(*) > 0 FROM kept
