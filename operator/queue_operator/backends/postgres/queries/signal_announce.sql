-- Raises the version of some topics and tells those who listen.
-- Parameters: topics text[], sorted, so that two of these never wait for each other.
-- Index: signal's primary key. Locks: the topics' rows, and at commit the server's one
-- notification lock; therefore never part of a transaction that does anything else.
-- The payload is {topic: version}, so a listener needs no look at the table.
-- A lost announcement costs one poll of a listener, so the commit does not wait for the disk.
WITH raised AS (
    INSERT INTO signal (topic, version)
    SELECT topic, 1
    FROM unnest(%(topics)s::text[]) AS announced (topic)
    ON CONFLICT (topic) DO UPDATE SET version = signal.version + 1
    RETURNING topic, version
)
SELECT set_config('synchronous_commit', 'off', true),
       pg_notify('queue_operator', json_object_agg(topic, version)::text)
FROM raised
