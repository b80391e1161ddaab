"""The metrics that dashboards, rules and alerts may use: name, kind and labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from queue_operator.metrics import registry, worker_table


@dataclass(frozen=True)
class Known:
    """What is known of a metric."""

    kind: str
    labels: tuple[str, ...] = ()


COMING: Final[Mapping[str, Known]] = {
    "queueoperator_database_size_bytes": Known("gauge"),
    "queueoperator_database_table_bytes": Known("gauge", ("table",)),
    "queueoperator_database_dead_rows": Known("gauge", ("table",)),
    "queueoperator_database_oldest_transaction_seconds": Known("gauge"),
    "queueoperator_database_connections": Known("gauge", ("state",)),
    "queueoperator_store_connections": Known("gauge", ("state",)),
    "queueoperator_store_connections_max": Known("gauge"),
    "queueoperator_store_connection_wait_seconds": Known("histogram"),
    "queueoperator_store_connection_waiters": Known("gauge"),
    "queueoperator_event_loop_lag_seconds": Known("histogram", ("process",)),
    "queueoperator_http_requests_total": Known("counter", ("method", "route", "code")),
    "queueoperator_http_request_seconds": Known("histogram", ("method", "route")),
    "queueoperator_http_requests_in_flight": Known("gauge"),
    "queueoperator_grpc_calls_total": Known("counter", ("method", "code")),
    "queueoperator_grpc_call_seconds": Known("histogram", ("method",)),
    "queueoperator_controller_owned_namespaces": Known("gauge"),
    "queueoperator_controller_intake_backlog": Known("gauge"),
    "queueoperator_controller_status_backlog": Known("gauge"),
    "queueoperator_controller_status_lag_seconds": Known("gauge"),
    "queueoperator_controller_status_writes_total": Known("counter", ("result",)),
    "queueoperator_controller_api_requests_total": Known("counter", ("code",)),
    "queueoperator_controller_throttled_total": Known("counter"),
    "queueoperator_controller_watch_restarts_total": Known("counter", ("resource",)),
    "queueoperator_controller_last_comparison_timestamp_seconds": Known("gauge"),
    "queueoperator_controller_last_comparison_seconds": Known("gauge"),
    "queueoperator_controller_cpu_seconds_total": Known("counter"),
    "queueoperator_controller_resident_memory_bytes": Known("gauge"),
}
"""Of each replica's doors, pool, controller and database."""
OTHERS: Final[Mapping[str, Known]] = {
    "up": Known("gauge"),
    "ALERTS": Known("gauge", ("alertname", "alertstate", "severity", "namespace", "type")),
    "scrape_samples_scraped": Known("gauge"),
    "process_cpu_seconds_total": Known("counter"),
    "process_resident_memory_bytes": Known("gauge"),
}
"""Of Prometheus itself, and of its client library."""
OURS: Final = {
    metric.name: Known(str(metric.kind), metric.labels)
    for metric in (*registry.METRICS, *worker_table.METRICS)
}
NAMES: Final[Mapping[str, Known]] = {**COMING, **OTHERS, **OURS}
