"""The dashboard of the operator's replicas, its doors, its controller and its database."""

from typing import Final

from observability.dashboards import Dashboard, Row
from observability.panels import GREEN, RED, YELLOW, Panel, Query


def _rate(metric: str, labels: str, more: str = "") -> str:
    return f"sum by ({labels}) (rate({metric}{{:job{more}}}[$__rate_interval]))"


def _p99(metric: str, labels: str) -> str:
    return (
        f"histogram_quantile(0.99, sum by ({labels}, le) "
        f"(rate({metric}_bucket{{:job}}[$__rate_interval])))"
    )


def _stat(
    title: str,
    description: str,
    expression: str,
    *steps: tuple[float | None, str],
    unit: str = "short",
) -> Panel:
    return Panel(
        kind="stat",
        title=title,
        description=description,
        queries=[Query(expression)],
        steps=steps,
        unit=unit,
        width=3,
        height=4,
    )


_UP: Final = Row(
    "Is it up?",
    (
        _stat(
            "Replicas",
            "Replicas that answer Prometheus.",
            "sum(up{:job} and on (job, instance) queueoperator_build_info{:job})",
            (None, RED),
            (1, GREEN),
        ),
        _stat(
            "Store",
            "1 if all replicas reached the database at their last look.",
            "min(queueoperator_store_up{:job})",
            (None, RED),
            (1, GREEN),
        ),
        _stat(
            "Leaders",
            "Replicas that show the figures about jobs. Exactly one should.",
            "sum(queueoperator_leader{:job})",
            (None, RED),
            (1, GREEN),
            (2, RED),
        ),
        _stat(
            "Controller",
            "1 while a controller serves custom resources.",
            "max(queueoperator_controller_up{:job})",
            (None, RED),
            (1, GREEN),
        ),
        _stat(
            "Figures behind",
            "Age of the oldest event that the counters lack.",
            "max(queueoperator_event_log_lag_seconds{:job})",
            (None, GREEN),
            (15, YELLOW),
            (60, RED),
            unit="s",
        ),
        _stat(
            "Status lag",
            "How long the oldest status that is to be written waits.",
            "max(queueoperator_controller_status_lag_seconds{:job})",
            (None, GREEN),
            (15, YELLOW),
            (60, RED),
            unit="s",
        ),
        _stat(
            "Unnamed types",
            "Pairs of namespace and type that share the type `other`.",
            "max(queueoperator_unnamed_types{:job})",
            (None, GREEN),
            (1, YELLOW),
        ),
        _stat(
            "Series",
            "Samples in the largest scrape of a replica.",
            "max(scrape_samples_scraped{:job} "
            "and on (job, instance) queueoperator_build_info{:job})",
            (None, GREEN),
            (25000, RED),
        ),
        Panel(
            kind="table",
            title="What runs",
            description="The version of each replica.",
            queries=[Query("max by (instance, replica, version) (queueoperator_build_info{:job})")],
            columns=("instance", "replica", "version"),
            value="up",
        ),
        Panel(
            kind="timeseries",
            title="Worker streams",
            description="Open streams of workers, by replica.",
            queries=[
                Query("sum by (instance) (queueoperator_worker_streams{:ns})", "{{instance}}")
            ],
        ),
        Panel(
            kind="timeseries",
            title="Event loop lag",
            description="99th percentile of how late a timer fires.",
            queries=[
                Query(
                    _p99("queueoperator_event_loop_lag_seconds", "instance, process"),
                    "{{instance}} {{process}}",
                )
            ],
            unit="s",
            steps=((None, "transparent"), (0.5, RED)),
        ),
    ),
)

_DOORS: Final = Row(
    "Do the doors answer?",
    (
        Panel(
            kind="timeseries",
            title="REST requests by status",
            description="A second.",
            queries=[Query(_rate("queueoperator_http_requests_total", "code"), "{{code}}")],
            unit="reqps",
            stacked=True,
        ),
        Panel(
            kind="timeseries",
            title="REST time to answer",
            description="99th percentile by route, the ten slowest.",
            queries=[
                Query(
                    f"topk(10, {_p99('queueoperator_http_request_seconds', 'method, route')})",
                    "{{method}} {{route}}",
                )
            ],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="REST requests in flight",
            description="By replica.",
            queries=[
                Query(
                    "sum by (instance) (queueoperator_http_requests_in_flight{:job})",
                    "{{instance}}",
                )
            ],
        ),
        Panel(
            kind="timeseries",
            title="Streams of events",
            description="Those who follow jobs, and those a minute that were too slow.",
            queries=[
                Query("sum by (instance) (queueoperator_event_streams{:job})", "{{instance}}"),
                Query(
                    "sum(rate(queueoperator_event_streams_slow_total{:job}"
                    "[$__rate_interval])) * 60",
                    "too slow",
                ),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Events told",
            description="A second, to all streams together.",
            queries=[
                Query(
                    "sum by (instance) (rate(queueoperator_event_streams_sent_total{:job}"
                    "[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="gRPC calls by status",
            description="A second; a worker's stream counts when it ends.",
            queries=[Query(_rate("queueoperator_grpc_calls_total", "code"), "{{code}}")],
            unit="reqps",
            stacked=True,
        ),
        Panel(
            kind="timeseries",
            title="gRPC time to answer",
            description="99th percentile of unary calls by method.",
            queries=[Query(_p99("queueoperator_grpc_call_seconds", "method"), "{{method}}")],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="Stale outcomes",
            description="A minute. Refused, because another worker had claimed the job since.",
            queries=[
                Query(
                    "sum by (namespace) "
                    "(rate(queueoperator_stale_outcomes_total{:ns}[$__rate_interval])) * 60",
                    "{{namespace}}",
                )
            ],
            unit="opm",
        ),
    ),
)

_STORE: Final = Row(
    "Does the store answer?",
    (
        Panel(
            kind="timeseries",
            title="Calls to the store",
            description="A second, the ten most frequent.",
            queries=[
                Query(
                    f"topk(10, {_rate('queueoperator_store_call_seconds_count', 'method')})",
                    "{{method}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Time of calls",
            description="99th percentile by method, the ten slowest.",
            queries=[
                Query(
                    f"topk(10, {_p99('queueoperator_store_call_seconds', 'method')})", "{{method}}"
                )
            ],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="Errors of the store",
            description="""A second, by code. `unavailable` and `internal_error` are the store's;
            the others tell callers what they did wrong.""",
            queries=[Query(_rate("queueoperator_store_errors_total", "code"), "{{code}}")],
            unit="ops",
        ),
        Panel(
            kind="timeseries",
            title="Connections of the pools",
            description="Of all replicas, and how many there may be.",
            queries=[
                Query("sum by (state) (queueoperator_store_connections{:job})", "{{state}}"),
                Query("sum(queueoperator_store_connections_max{:job})", "at most"),
                Query("sum(queueoperator_store_connection_waiters{:job})", "waiting callers"),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Wait for a connection",
            description="99th percentile by replica.",
            queries=[
                Query(
                    _p99("queueoperator_store_connection_wait_seconds", "instance"), "{{instance}}"
                )
            ],
            unit="s",
        ),
        Panel(
            kind="timeseries",
            title="Waiting lanes",
            description="Lanes with waiting jobs. A hundred thousand make a look slow.",
            queries=[Query("max(queueoperator_waiting_lanes{:job})", "lanes")],
        ),
    ),
)

_CONTROLLER: Final = Row(
    "Does the controller keep up?",
    (
        Panel(
            kind="timeseries",
            title="Backlog of the controller",
            description="QueueJobs seen and not stored yet; jobs whose status is not written yet.",
            queries=[
                Query("sum(queueoperator_controller_intake_backlog{:job})", "to store"),
                Query("sum(queueoperator_controller_status_backlog{:job})", "to write"),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Status lag over time",
            description="How long the oldest status that is to be written waits.",
            queries=[
                Query(
                    "max by (instance) (queueoperator_controller_status_lag_seconds{:job})",
                    "{{instance}}",
                )
            ],
            unit="s",
            steps=((None, "transparent"), (60, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Statuses written",
            description="A second, by result.",
            queries=[
                Query(_rate("queueoperator_controller_status_writes_total", "result"), "{{result}}")
            ],
            unit="wps",
        ),
        Panel(
            kind="timeseries",
            title="Requests to the API server",
            description="A second, by status; `none` are those without an answer.",
            queries=[
                Query(_rate("queueoperator_controller_api_requests_total", "code"), "{{code}}"),
                Query(
                    "sum(rate(queueoperator_controller_throttled_total{:job}[$__rate_interval]))",
                    "throttled",
                ),
            ],
            unit="reqps",
        ),
        Panel(
            kind="timeseries",
            title="Watches begun anew",
            description="A minute, by resource.",
            queries=[
                Query(
                    f"{_rate('queueoperator_controller_watch_restarts_total', 'resource')} * 60",
                    "{{resource}}",
                )
            ],
            unit="opm",
        ),
        Panel(
            kind="timeseries",
            title="Since the last comparison",
            description="""Since all QueueJobs were last compared with the store, and how long that
            took.""",
            queries=[
                Query(
                    "time() - max(queueoperator_controller_last_comparison_timestamp_seconds"
                    "{:job} > 0)",
                    "ago",
                ),
                Query("max(queueoperator_controller_last_comparison_seconds{:job})", "took"),
            ],
            unit="s",
            steps=((None, "transparent"), (900, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Namespaces",
            description="""Owned: served by this operator. Refused: left alone, because another one
            serves them.""",
            queries=[
                Query("sum(queueoperator_controller_owned_namespaces{:job})", "owned"),
                Query("max(queueoperator_controller_refused_namespaces{:job})", "refused"),
                Query("max(queueoperator_controller_over_quota_resources{:job})", "over quota"),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Starts of the controller and the sender",
            description="An hour. More than one or two mean that one hangs or ends.",
            queries=[
                Query(
                    f"{_rate('queueoperator_controller_restarts_total', 'instance')} * 3600",
                    "{{instance}} controller",
                ),
                Query(
                    f"{_rate('queueoperator_webhook_sender_restarts_total', 'instance')} * 3600",
                    "{{instance}} sender",
                ),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Processors in use",
            description="By the server's process, by the controller's and by that of the sender.",
            queries=[
                Query(
                    "sum by (instance) (rate(process_cpu_seconds_total{:job}[$__rate_interval]) "
                    "and on (job, instance) queueoperator_build_info{:job})",
                    "{{instance}} server",
                ),
                Query(
                    _rate("queueoperator_controller_cpu_seconds_total", "instance"),
                    "{{instance}} controller",
                ),
                Query(
                    _rate("queueoperator_webhook_sender_cpu_seconds_total", "instance"),
                    "{{instance}} sender",
                ),
            ],
        ),
        Panel(
            kind="timeseries",
            title="Memory",
            description="Resident memory of the server, the controller and the sender.",
            queries=[
                Query(
                    "sum by (instance) (process_resident_memory_bytes{:job} "
                    "and on (job, instance) queueoperator_build_info{:job})",
                    "{{instance}} server",
                ),
                Query(
                    "sum by (instance) (queueoperator_controller_resident_memory_bytes{:job})",
                    "{{instance}} controller",
                ),
                Query(
                    "sum by (instance) (queueoperator_webhook_sender_resident_memory_bytes{:job})",
                    "{{instance}} sender",
                ),
            ],
            unit="bytes",
        ),
    ),
)

_DATABASE: Final = Row(
    "Is the database in shape?",
    (
        Panel(
            kind="timeseries",
            title="Size",
            description="Of the database, and of the five largest tables with their indexes.",
            queries=[
                Query("max(queueoperator_database_size_bytes{:job})", "database"),
                Query(
                    "topk(5, max by (table) (queueoperator_database_table_bytes{:job}))",
                    "{{table}}",
                ),
            ],
            unit="bytes",
        ),
        Panel(
            kind="timeseries",
            title="Dead rows",
            description="Rows that vacuum has yet to remove, the ten worst tables.",
            queries=[
                Query(
                    "topk(10, max by (table) (queueoperator_database_dead_rows{:job}))",
                    "{{table}}",
                )
            ],
        ),
        Panel(
            kind="timeseries",
            title="Oldest transaction",
            description="It holds up vacuum, and claims get slower.",
            queries=[Query("max(queueoperator_database_oldest_transaction_seconds{:job})", "age")],
            unit="s",
            steps=((None, "transparent"), (600, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Connections",
            description="Of this database, by what they do.",
            queries=[
                Query("max by (state) (queueoperator_database_connections{:job})", "{{state}}")
            ],
            stacked=True,
        ),
        Panel(
            kind="timeseries",
            title="Figures behind over time",
            description="Age of the oldest event that the counters lack.",
            queries=[Query("max(queueoperator_event_log_lag_seconds{:job})", "lag")],
            unit="s",
            steps=((None, "transparent"), (60, RED)),
        ),
        Panel(
            kind="timeseries",
            title="Samples of a scrape",
            description="By replica. The bound is 25,000.",
            queries=[
                Query(
                    "max by (instance) (scrape_samples_scraped{:job} "
                    "and on (job, instance) queueoperator_build_info{:job})",
                    "{{instance}}",
                ),
            ],
            steps=((None, "transparent"), (25000, RED)),
        ),
    ),
)

OPERATOR: Final = Dashboard(
    name="operator-database",
    title="Queue Operator / Operator and database",
    description="Do replicas, doors, controller and database keep up? What is about the store "
    "comes from the replica that leads: choose all instances to see it.",
    rows=(_UP, _DOORS, _STORE, _CONTROLLER, _DATABASE),
    instances=True,
)
