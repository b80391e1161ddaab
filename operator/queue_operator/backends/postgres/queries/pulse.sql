-- What an idle replica has to know four times a second, in one statement: makes jobs due, and gives
-- rows that begin as those of `arrival_read.sql`. In the first row follow the lanes of the jobs made
-- due and the version of every topic, and in each before which time no job waits for one any more,
-- and the seconds until the next one is due.
-- Parameters: topics (text[]), those of {{staging}} and {{fresh}}. Index: ready_stage twice, and
--   those of {{fresh}}.
-- Locks: those of {{staging}}.
-- Trap: the next one is looked for among those that are not due yet, or rows that another
--   replica holds would be asked for without a pause.
WITH {{staging}}
SELECT now(), pg_current_snapshot()::text, {{history}},
       ARRAY(SELECT ARRAY[namespace, type] FROM pause),
       fresh.lane_id, fresh.first, fresh.first_no, fresh.last, fresh.last_no, fresh.due_at,
       CASE WHEN fresh.place > 1 THEN '{}' ELSE ARRAY(SELECT lane_id FROM staged) END,
       CASE WHEN fresh.place > 1 THEN NULL
            ELSE (SELECT jsonb_object_agg(
                      topic, coalesce(pg_sequence_last_value(('signal_' || topic)::regclass), 0))
                  FROM unnest(%(topics)s::text[]) AS t(topic)) END,
       (SELECT since FROM waits),
       (SELECT extract(epoch FROM eligible_at - now())::float8 FROM ready
        WHERE NOT due AND NOT blocked AND eligible_at > now()
          AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
        ORDER BY eligible_at LIMIT 1)
FROM (VALUES (true)) AS always (is_true)
LEFT JOIN (
    SELECT *, row_number() OVER () AS place FROM ({{fresh}}) AS unseen
) AS fresh ON true
