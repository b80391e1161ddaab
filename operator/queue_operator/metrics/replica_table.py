"""The rows of the table of metrics that are about one replica: its doors, its connections to the
store, its event loops, its controller; and what one of the replicas sees of the database.
"""

from typing import Final

from queue_operator.metrics.rows import Kind, Metric

REQUEST_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
WAIT_BUCKETS_S: Final = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
DELIVERY_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60)
LAG_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

HTTP_REQUESTS: Final = Metric(
    name="queueoperator_http_requests_total",
    kind=Kind.COUNTER,
    labels=("method", "route", "code"),
    help="Requests to the REST door that ended. route is the template of the path, `unmatched` for "
    "paths that are none; code is `none` where the caller was gone before the answer began.",
)
HTTP_SECONDS: Final = Metric(
    name="queueoperator_http_request_seconds",
    kind=Kind.HISTOGRAM,
    labels=("method", "route"),
    buckets=REQUEST_BUCKETS_S,
    help="From the head of a request to the end of its answer, streams included.",
)
HTTP_IN_FLIGHT: Final = Metric(
    name="queueoperator_http_requests_in_flight",
    kind=Kind.GAUGE,
    help="Requests to the REST door that are being answered.",
)
EVENT_STREAMS: Final = Metric(
    name="queueoperator_event_streams",
    kind=Kind.GAUGE,
    help="Streams of events that are open at this replica, over REST and gRPC.",
)
EVENTS_SENT: Final = Metric(
    name="queueoperator_event_streams_sent_total",
    kind=Kind.COUNTER,
    help="Events that these were told, each as often as it was told.",
)
EVENT_STREAMS_SLOW: Final = Metric(
    name="queueoperator_event_streams_slow_total",
    kind=Kind.COUNTER,
    help="Streams that were ended because their readers were too slow; these come back.",
)
GRPC_CALLS: Final = Metric(
    name="queueoperator_grpc_calls_total",
    kind=Kind.COUNTER,
    labels=("method", "code"),
    help="Unary calls and streams that ended, not messages. method is `Service/Method`, "
    "`unmatched` for methods that are none; code is that of gRPC in lower case.",
)
GRPC_SECONDS: Final = Metric(
    name="queueoperator_grpc_call_seconds",
    kind=Kind.HISTOGRAM,
    labels=("method",),
    buckets=REQUEST_BUCKETS_S,
    help="From the head of a unary call to its answer.",
)
CONNECTIONS: Final = Metric(
    name="queueoperator_store_connections",
    kind=Kind.GAUGE,
    labels=("state",),
    help="Connections of this replica's server to the database: idle, busy (in use, or "
    "being made).",
)
CONNECTIONS_MAX: Final = Metric(
    name="queueoperator_store_connections_max",
    kind=Kind.GAUGE,
    help="As many connections it may have at most.",
)
CONNECTION_WAIT: Final = Metric(
    name="queueoperator_store_connection_wait_seconds",
    kind=Kind.HISTOGRAM,
    buckets=WAIT_BUCKETS_S,
    help="How long a statement waited for a connection, waits in vain included.",
)
CONNECTION_WAITERS: Final = Metric(
    name="queueoperator_store_connection_waiters",
    kind=Kind.GAUGE,
    help="Statements that wait for a connection now.",
)
LOOP_LAG: Final = Metric(
    name="queueoperator_event_loop_lag_seconds",
    kind=Kind.HISTOGRAM,
    labels=("process",),
    buckets=LAG_BUCKETS_S,
    help="How late a timer fires that is due four times a second. process: server, controller. "
    "While a loop stands still there is nothing to see; when it goes on the whole time is.",
)
OVER_QUOTA: Final = Metric(
    name="queueoperator_controller_over_quota_resources",
    kind=Kind.GAUGE,
    help="QueueJobs that wait for room in the quota of their namespace, and of which nothing is "
    "stored, as the controller of this replica sees them. Nearly the same on every replica: "
    "aggregate with max, not sum.",
)
CONTROLLER_UP: Final = Metric(
    name="queueoperator_controller_up",
    kind=Kind.GAUGE,
    help="1 while the controller of this replica serves custom resources, 0 while it starts or the "
    "API server does not answer it. REST and gRPC do not depend on it.",
)
CONTROLLER_RESTARTS: Final = Metric(
    name="queueoperator_controller_restarts_total",
    kind=Kind.COUNTER,
    help="How often the controller of this replica ended, or hung, and was started again.",
)
REFUSED_NAMESPACES: Final = Metric(
    name="queueoperator_controller_refused_namespaces",
    kind=Kind.GAUGE,
    help="Namespaces whose custom resources this replica leaves alone, because an operator with "
    "another database serves them, or the Lease that says so cannot be written there. Anything but "
    "0 wants somebody to look; the log says why.",
)
OWNED_NAMESPACES: Final = Metric(
    name="queueoperator_controller_owned_namespaces",
    kind=Kind.GAUGE,
    help="Namespaces whose Lease the controller of this replica holds.",
)
INTAKE_BACKLOG: Final = Metric(
    name="queueoperator_controller_intake_backlog",
    kind=Kind.GAUGE,
    help="QueueJobs that were seen and are not stored yet.",
)
STATUS_BACKLOG: Final = Metric(
    name="queueoperator_controller_status_backlog",
    kind=Kind.GAUGE,
    help="Resources whose new status is not written yet, at most some thousands: the rest waits in "
    "the database.",
)
STATUS_LAG: Final = Metric(
    name="queueoperator_controller_status_lag_seconds",
    kind=Kind.GAUGE,
    help="How long the oldest of these has waited since the controller read it; 0 for none. A "
    "status that may be overtaken is held back for 2 s. Grows on while the controller hangs.",
)
STATUS_WRITES: Final = Metric(
    name="queueoperator_controller_status_writes_total",
    kind=Kind.COUNTER,
    labels=("result",),
    help="Statuses that were dealt with: written; superseded, where the resource shows a newer "
    "one; gone, where there is no resource any more; refused, which wants somebody to look.",
)
API_REQUESTS: Final = Metric(
    name="queueoperator_controller_api_requests_total",
    kind=Kind.COUNTER,
    labels=("code",),
    help="Requests of the controller to the API server, those of its watches included, by HTTP "
    "status; `none` where there was no answer, `other` for rare statuses.",
)
THROTTLED: Final = Metric(
    name="queueoperator_controller_throttled_total",
    kind=Kind.COUNTER,
    help="Those of them that were answered 429.",
)
WATCH_RESTARTS: Final = Metric(
    name="queueoperator_controller_watch_restarts_total",
    kind=Kind.COUNTER,
    labels=("resource",),
    help="Watches that were begun again by the same process: the API server ends each after some "
    "minutes, so what matters is how often. resource: queuejobs, finished_queuejobs, queueworkers, "
    "other.",
)
COMPARED_AT: Final = Metric(
    name="queueoperator_controller_last_comparison_timestamp_seconds",
    kind=Kind.GAUGE,
    help="When all QueueJobs were last compared with the store. Absent until then.",
)
COMPARISON: Final = Metric(
    name="queueoperator_controller_last_comparison_seconds",
    kind=Kind.GAUGE,
    help="How long that took. Absent until then.",
)
CONTROLLER_CPU: Final = Metric(
    name="queueoperator_controller_cpu_seconds_total",
    kind=Kind.COUNTER,
    help="Time of the processor that the processes of the controller have used.",
)
CONTROLLER_MEMORY: Final = Metric(
    name="queueoperator_controller_resident_memory_bytes",
    kind=Kind.GAUGE,
    help="Memory of the process of the controller. Absent while there is none.",
)
DELIVERIES: Final = Metric(
    name="queueoperator_webhook_deliveries_total",
    kind=Kind.COUNTER,
    labels=("outcome",),
    help="Tries of this replica to tell a receiver of the end of a job: delivered; retried, which "
    "failed and is made again; failed, the last of its message; refused, where the address may not "
    "be told.",
)
DELIVERY_SECONDS: Final = Metric(
    name="queueoperator_webhook_delivery_seconds",
    kind=Kind.HISTOGRAM,
    buckets=DELIVERY_BUCKETS_S,
    help="How long such a try took, whatever came of it.",
)
MESSAGES_PENDING: Final = Metric(
    name="queueoperator_webhook_pending",
    kind=Kind.GAUGE,
    labels=("namespace",),
    help="Messages that are to be sent, or sent again. Of the replica that shows what is about "
    "jobs; namespaces beyond 50 together as `other`.",
)
MESSAGES_FAILED: Final = Metric(
    name="queueoperator_webhook_failed",
    kind=Kind.GAUGE,
    labels=("namespace",),
    help="Messages that were given up and are kept. Of the same replica.",
)
OLDEST_DUE: Final = Metric(
    name="queueoperator_webhook_oldest_due_seconds",
    kind=Kind.GAUGE,
    help="For how long the oldest message that is due has been so, 0 for none. Of the same "
    "replica.",
)
SENDER_RESTARTS: Final = Metric(
    name="queueoperator_webhook_sender_restarts_total",
    kind=Kind.COUNTER,
    help="How often the process of this replica that sends messages ended, or hung, and was "
    "started again.",
)
SENDER_CPU: Final = Metric(
    name="queueoperator_webhook_sender_cpu_seconds_total",
    kind=Kind.COUNTER,
    help="Time of the processor that its processes have used.",
)
SENDER_MEMORY: Final = Metric(
    name="queueoperator_webhook_sender_resident_memory_bytes",
    kind=Kind.GAUGE,
    help="Memory of the process. Absent while there is none.",
)
DATABASE_SIZE: Final = Metric(
    name="queueoperator_database_size_bytes",
    kind=Kind.GAUGE,
    help="The whole database on disk.",
)
TABLE_BYTES: Final = Metric(
    name="queueoperator_database_table_bytes",
    kind=Kind.GAUGE,
    labels=("table",),
    help="A table of ours on disk, with its indexes and what is kept apart of large rows.",
)
DEAD_ROWS: Final = Metric(
    name="queueoperator_database_dead_rows",
    kind=Kind.GAUGE,
    labels=("table",),
    help="Rows that vacuum has yet to remove, as the server estimates.",
)
OLDEST_TRANSACTION: Final = Metric(
    name="queueoperator_database_oldest_transaction_seconds",
    kind=Kind.GAUGE,
    help="Age of the oldest transaction of this database that keeps vacuum from removing rows, "
    "prepared ones included; 0 for none. Absent where the role may not see the sessions of others.",
)
DATABASE_CONNECTIONS: Final = Metric(
    name="queueoperator_database_connections",
    kind=Kind.GAUGE,
    labels=("state",),
    help="Connections of clients to this database: active, idle, idle_in_transaction, other. "
    "Absent where the role may not see the sessions of others: grant it pg_read_all_stats.",
)

REPLICA: Final = (
    HTTP_REQUESTS,
    HTTP_SECONDS,
    HTTP_IN_FLIGHT,
    EVENT_STREAMS,
    EVENTS_SENT,
    EVENT_STREAMS_SLOW,
    GRPC_CALLS,
    GRPC_SECONDS,
    CONNECTIONS,
    CONNECTIONS_MAX,
    CONNECTION_WAIT,
    CONNECTION_WAITERS,
    LOOP_LAG,
    CONTROLLER_UP,
    CONTROLLER_RESTARTS,
    OVER_QUOTA,
    REFUSED_NAMESPACES,
    OWNED_NAMESPACES,
    INTAKE_BACKLOG,
    STATUS_BACKLOG,
    STATUS_LAG,
    STATUS_WRITES,
    API_REQUESTS,
    THROTTLED,
    WATCH_RESTARTS,
    COMPARED_AT,
    COMPARISON,
    CONTROLLER_CPU,
    CONTROLLER_MEMORY,
    DELIVERIES,
    DELIVERY_SECONDS,
    MESSAGES_PENDING,
    MESSAGES_FAILED,
    OLDEST_DUE,
    SENDER_RESTARTS,
    SENDER_CPU,
    SENDER_MEMORY,
    DATABASE_SIZE,
    TABLE_BYTES,
    DEAD_ROWS,
    OLDEST_TRANSACTION,
    DATABASE_CONNECTIONS,
)
