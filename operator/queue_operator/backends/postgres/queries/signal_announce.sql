-- Raises the version of some topics, tells those who listen, and gives the new versions.
-- Parameters: topics text[]; told (JSON as text: what the notification says beside the versions,
--   who raised them and for which kinds of jobs).
-- Index: none, versions are sequences: rows updated for ever would be walked through by all who read
-- them while dead ones cannot be removed. Locks: at commit the server's one notification lock;
-- therefore never part of a transaction that does anything else.
-- The payload has {topic: version} as `versions`, so a listener needs no look at the table.
-- A lost announcement costs one poll of a listener, so the commit does not wait for the disk.
WITH raised AS (
    SELECT topic, nextval(('signal_' || topic)::regclass) AS version
    FROM unnest(%(topics)s::text[]) AS announced (topic)
), versions AS MATERIALIZED (
    SELECT jsonb_object_agg(topic, version) AS by_topic FROM raised
)
SELECT by_topic, set_config('synchronous_commit', 'off', true),
       pg_notify('queue_operator',
                 (%(told)s::jsonb || jsonb_build_object('versions', by_topic))::text)
FROM versions
