-- Makes jobs due whose delay or backoff is over and that have an attempt left; gives their lanes, and
-- before which time no job waits for one any more.
-- Parameters, index and locks: those of {{staging}}.
WITH {{staging}}
SELECT ARRAY(SELECT lane_id FROM staged), (SELECT since FROM waits)
