-- Stores a session, or hands the one with its id to another connection of the same worker. Gives
-- one row, what it is ordered and the connection that had it, or none where the id is another worker's
-- or was ended. A worker of that name is not lost any more.
-- Parameters: a value for each column but the opening, the time and the order's.
-- Index: worker_session's primary key; lost_worker_name. Locks: the one row, and what was kept of the
--   lost worker.
-- Trap: two connections of one session that open it at once both find the same one before them.
WITH back AS (
    DELETE FROM lost_worker
    WHERE namespace = %(namespace)s AND worker_name = %(worker_name)s
)
INSERT INTO worker_session AS stored (
    session_id, namespace, worker_name, pod_uid, host, replica, tags, types, capacity, busy,
    draining, version, connection
) VALUES (
    %(session_id)s, %(namespace)s, %(worker_name)s, %(pod_uid)s, %(host)s, %(replica)s,
    %(tags)s::text[], %(types)s::text[], %(capacity)s, %(busy)s, %(draining)s, %(version)s,
    %(connection)s
)
ON CONFLICT (session_id) DO UPDATE SET
    host = excluded.host,
    replica = excluded.replica,
    tags = excluded.tags,
    types = excluded.types,
    capacity = excluded.capacity,
    busy = excluded.busy,
    draining = excluded.draining,
    version = excluded.version,
    connection = excluded.connection,
    opening = excluded.opening,
    connected_at = now()
WHERE NOT stored.ended
  AND (stored.namespace, stored.worker_name, stored.pod_uid)
      = (excluded.namespace, excluded.worker_name, excluded.pod_uid)
RETURNING session_id, connection, wanted_capacity, wanted_tags, wanted_drain, ended, order_number,
          coalesce((SELECT before.connection FROM worker_session AS before
                    WHERE before.session_id = %(session_id)s), '')
