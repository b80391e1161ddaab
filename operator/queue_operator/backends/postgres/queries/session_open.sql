-- Stores a session, or replaces the one with its id.
-- Parameters: a value for each column but the two times.
-- Index: worker_session's primary key. Locks: the one row.
INSERT INTO worker_session AS stored (
    session_id, namespace, worker_name, pod_uid, host, replica, tags, types, capacity, busy,
    draining, version
) VALUES (
    %(session_id)s, %(namespace)s, %(worker_name)s, %(pod_uid)s, %(host)s, %(replica)s,
    %(tags)s::text[], %(types)s::text[], %(capacity)s, %(busy)s, %(draining)s, %(version)s
)
ON CONFLICT (session_id) DO UPDATE SET
    namespace = excluded.namespace,
    worker_name = excluded.worker_name,
    pod_uid = excluded.pod_uid,
    host = excluded.host,
    replica = excluded.replica,
    tags = excluded.tags,
    types = excluded.types,
    capacity = excluded.capacity,
    busy = excluded.busy,
    draining = excluded.draining,
    version = excluded.version,
    connected_at = now(),
    heartbeat_at = now()
