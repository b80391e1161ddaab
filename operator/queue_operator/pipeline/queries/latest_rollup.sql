-- The newest rows first, for people. Parameters: the most rows wanted.
SELECT
    hour, namespace, type, state, transitions, rate_per_s,
    queue_latency_p50_us, queue_latency_p90_us, queue_latency_p99_us, queue_latency_max_us,
    execution_p50_us, execution_p90_us, execution_p99_us, execution_max_us
FROM queue_operator.rollup_hour
ORDER BY hour DESC, namespace, type, state
LIMIT %s
