"""The metrics that dashboards, rules and alerts may use: name, kind and labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Known:
    """What is known of a metric."""

    kind: str
    labels: tuple[str, ...] = ()


NAMES: Final[Mapping[str, Known]] = {
    "queueoperator_jobs": Known("gauge", ("namespace", "type", "state")),
    "queueoperator_oldest_runnable_job_age_seconds": Known("gauge", ("namespace", "type")),
    "queueoperator_waiting_lanes": Known("gauge"),
    "queueoperator_needed_slots": Known("gauge", ("namespace", "pool")),
    "queueoperator_jobs_submitted_total": Known("counter", ("namespace", "type")),
    "queueoperator_job_attempts_total": Known(
        "counter", ("namespace", "type", "outcome", "error_class")
    ),
    "queueoperator_jobs_finished_total": Known("counter", ("namespace", "type", "state")),
    "queueoperator_job_wait_seconds": Known("histogram", ("namespace", "type")),
    "queueoperator_job_run_seconds": Known("histogram", ("namespace", "type")),
    "queueoperator_leases_expired_total": Known("counter", ("namespace", "type")),
    "queueoperator_event_log_lag_seconds": Known("gauge"),
    "queueoperator_unnamed_types": Known("gauge"),
    "queueoperator_database_size_bytes": Known("gauge"),
    "queueoperator_database_table_bytes": Known("gauge", ("table",)),
    "queueoperator_database_dead_rows": Known("gauge", ("table",)),
    "queueoperator_database_oldest_transaction_seconds": Known("gauge"),
    "queueoperator_database_connections": Known("gauge", ("state",)),
    "queueoperator_build_info": Known("gauge", ("version", "replica")),
    "queueoperator_leader": Known("gauge"),
    "queueoperator_store_up": Known("gauge"),
    "queueoperator_stale_outcomes_total": Known("counter", ("namespace",)),
    "queueoperator_worker_streams": Known("gauge", ("namespace",)),
    "queueoperator_worker_slots": Known("gauge", ("namespace", "state")),
    "queueoperator_store_call_seconds": Known("histogram", ("method",)),
    "queueoperator_store_errors_total": Known("counter", ("method", "code")),
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
    "queueoperator_controller_up": Known("gauge"),
    "queueoperator_controller_restarts_total": Known("counter"),
    "queueoperator_controller_over_quota_resources": Known("gauge"),
    "queueoperator_controller_refused_namespaces": Known("gauge"),
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
    "queueworker_info": Known("gauge", ("version", "worker", "operator")),
    "queueworker_connected": Known("gauge"),
    "queueworker_sessions_total": Known("counter"),
    "queueworker_slots": Known("gauge", ("state",)),
    "queueworker_handlers": Known("gauge"),
    "queueworker_attempts_total": Known("counter", ("type", "outcome", "error_class")),
    "queueworker_attempt_seconds": Known("histogram", ("type",)),
    "queueworker_outcomes_unsent": Known("gauge"),
    "queueworker_heartbeats_total": Known("counter"),
    "queueworker_heartbeat_answer_seconds": Known("histogram"),
    "queueworker_last_heartbeat_answer_timestamp_seconds": Known("gauge"),
    "queueworker_leases_lost_total": Known("counter"),
    "queueworker_stuck_handlers": Known("gauge"),
    "queueworker_event_loop_lag_seconds": Known("histogram"),
    # Of Prometheus itself, and of its client library.
    "up": Known("gauge"),
    "ALERTS": Known("gauge", ("alertname", "alertstate", "severity", "namespace", "type")),
    "scrape_samples_scraped": Known("gauge"),
    "process_cpu_seconds_total": Known("counter"),
    "process_resident_memory_bytes": Known("gauge"),
}
