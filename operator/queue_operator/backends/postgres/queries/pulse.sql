-- What an idle replica has to know four times a second, in one statement: makes jobs due whose
-- delay or backoff is over and that have an attempt left, and gives their lanes, the seconds
-- until the next one, the version of every topic, the highest lane, and what is paused: pairs of
-- a namespace and a type.
-- Parameters: max_rows. Index: ready_stage twice, lane_pkey. Locks: the rows made due; those
--   that another replica is making due are passed over.
-- Trap: the next one is looked for among those that are not due yet, or rows that another
--   replica holds would be asked for without a pause.
WITH staged AS (
    UPDATE ready SET due = true
    WHERE job_no = ANY (ARRAY(
        SELECT job_no FROM ready
        WHERE NOT due AND NOT blocked AND eligible_at <= now()
          AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
        ORDER BY eligible_at LIMIT %(max_rows)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING lane_id
)
SELECT ARRAY(SELECT lane_id FROM staged),
       (SELECT extract(epoch FROM eligible_at - now())::float8 FROM ready
        WHERE NOT due AND NOT blocked AND eligible_at > now()
          AND (max_attempts > 0 AND attempt >= max_attempts) IS NOT TRUE
        ORDER BY eligible_at LIMIT 1),
       (SELECT jsonb_object_agg(topic, version) FROM signal),
       (SELECT id FROM lane ORDER BY id DESC LIMIT 1),
       ARRAY(SELECT ARRAY[namespace, type] FROM pause)
