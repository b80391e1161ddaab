-- One hour of one namespace, type and state, recomputed from the lake as a whole.
INSERT INTO queue_operator.rollup_hour (
    hour, namespace, type, state, transitions, rate_per_s,
    queue_latency_p50_us, queue_latency_p90_us, queue_latency_p99_us, queue_latency_max_us,
    execution_p50_us, execution_p90_us, execution_p99_us, execution_max_us,
    queue_latency_histogram, execution_histogram, written_at
)
VALUES (
    %(hour)s, %(namespace)s, %(type)s, %(state)s, %(transitions)s, %(rate_per_s)s,
    %(queue_latency_p50_us)s, %(queue_latency_p90_us)s,
    %(queue_latency_p99_us)s, %(queue_latency_max_us)s,
    %(execution_p50_us)s, %(execution_p90_us)s, %(execution_p99_us)s, %(execution_max_us)s,
    %(queue_latency_histogram)s, %(execution_histogram)s, now()
)
ON CONFLICT (hour, namespace, type, state) DO UPDATE SET
    transitions = excluded.transitions,
    rate_per_s = excluded.rate_per_s,
    queue_latency_p50_us = excluded.queue_latency_p50_us,
    queue_latency_p90_us = excluded.queue_latency_p90_us,
    queue_latency_p99_us = excluded.queue_latency_p99_us,
    queue_latency_max_us = excluded.queue_latency_max_us,
    execution_p50_us = excluded.execution_p50_us,
    execution_p90_us = excluded.execution_p90_us,
    execution_p99_us = excluded.execution_p99_us,
    execution_max_us = excluded.execution_max_us,
    queue_latency_histogram = excluded.queue_latency_histogram,
    execution_histogram = excluded.execution_histogram,
    written_at = excluded.written_at
