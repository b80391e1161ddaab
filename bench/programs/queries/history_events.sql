-- Copies the newest completion in the log many times, spread over the days since then, in their
-- order. What reads the log by transaction takes them for as old as that row.
-- Parameters: copies, days.
INSERT INTO queue_operator.job_event
    (xid, at, event, from_state, to_state, job_nos, attempts, run_us, lane_ids)
SELECT xid, at + make_interval(days => %(days)s) * (copy::float8 / %(copies)s),
       event, from_state, to_state, job_nos[1:1], attempts[1:1], run_us[1:1], lane_ids[1:1]
FROM (
    SELECT * FROM queue_operator.job_event WHERE event = 'COMPLETE' ORDER BY seq DESC LIMIT 1
) AS newest
CROSS JOIN generate_series(1, %(copies)s) AS copy
ORDER BY copy
