"""The alerts about the operator's replicas, its controller and its database."""

from typing import Final

from observability.alerts import JOBS, PROMISED, WORKERS
from observability.recorded import GROUPS as RECORDED
from observability.rules import Alert, Group, Severity, document

_GRPC_FAULTS: Final = "internal|unknown|unavailable|data_loss|deadline_exceeded"

REPLICAS: Final = (
    Alert(
        name="QueueOperatorAbsent",
        expression="absent(up{:op} == 1)",
        severity=Severity.CRITICAL,
        summary="No replica of the operator answers Prometheus",
        description="""Nothing is known about the queue. Workers finish what they run; nothing new
        starts if the operator is really gone.""",
    ),
    Alert(
        name="QueueOperatorReplicaDown",
        expression="up{:op} == 0",
        severity=Severity.WARNING,
        summary="Replica {{ $labels.instance }} of the operator does not answer Prometheus",
        description="It is gone, hangs, or its metrics port cannot be reached.",
    ),
    Alert(
        name="QueueOperatorStoreDown",
        expression="min by (job) (queueoperator_store_up{:op}) == 0",
        severity=Severity.CRITICAL,
        summary="The operator does not reach its database",
        description="""At least one replica failed its last look at the store. Nothing is submitted,
        claimed or settled through it.""",
    ),
    Alert(
        name="QueueOperatorNotOneLeader",
        expression="sum by (job) (queueoperator_leader{:op}) != 1",
        severity=Severity.WARNING,
        summary="Not exactly one replica shows the figures about jobs",
        description="""{{ $value }} replicas do. With none the figures are missing; with more than
        one sums count jobs twice.""",
    ),
    Alert(
        name="QueueOperatorPoolExhausted",
        expression="min_over_time(queueoperator_store_connection_waiters{:op}[1m]) > 0",
        held="30s",
        severity=Severity.WARNING,
        summary="Replica {{ $labels.instance }} waits for database connections",
        description="{{ $value }} callers have waited at each look of the last minute.",
    ),
    Alert(
        name="QueueOperatorStoreErrors",
        expression="""sum by (job, code)
        (increase(queueoperator_store_errors_total{:op, code=~"unavailable|internal_error"}[2m]))
        >= 5""",
        held="0s",
        severity=Severity.WARNING,
        summary="Calls to the store fail",
        description="{{ $value | humanize }} calls of two minutes ended with {{ $labels.code }}.",
    ),
    Alert(
        name="QueueOperatorEventLoopLag",
        expression="""histogram_quantile(0.99, sum by (job, instance, process, le)
        (rate(queueoperator_event_loop_lag_seconds_bucket{:op}[2m]))) > @eventLoopLagSeconds@""",
        held="30s",
        severity=Severity.WARNING,
        summary="The event loop of {{ $labels.instance }} ({{ $labels.process }}) is held up",
        description="""A timer fires {{ $value | humanizeDuration }} late (99th percentile): the
        processor is overloaded or something blocks the loop.""",
    ),
    Alert(
        name="QueueOperatorRestErrors",
        expression="""sum by (job) (rate(queueoperator_http_requests_total{:op, code=~"5.."}[2m]))
        / sum by (job) (rate(queueoperator_http_requests_total{:op}[2m])) > @errorRatio@
        and sum by (job)
            (increase(queueoperator_http_requests_total{:op, code=~"5.."}[2m])) >= 5""",
        held="0s",
        severity=Severity.CRITICAL,
        summary="REST requests fail",
        description="{{ $value | humanizePercentage }} of two minutes were answered with 5xx.",
    ),
    Alert(
        name="QueueOperatorGrpcErrors",
        expression=f"""sum by (job)
            (rate(queueoperator_grpc_calls_total{{:op, code=~"{_GRPC_FAULTS}"}}[2m]))
        / sum by (job) (rate(queueoperator_grpc_calls_total{{:op}}[2m])) > @errorRatio@
        and sum by (job)
            (increase(queueoperator_grpc_calls_total{{:op, code=~"{_GRPC_FAULTS}"}}[2m])) >= 5""",
        held="0s",
        severity=Severity.CRITICAL,
        summary="gRPC calls fail",
        description="{{ $value | humanizePercentage }} of two minutes ended by the server's fault.",
    ),
    Alert(
        name="QueueOperatorTooManySeries",
        expression="scrape_samples_scraped{:op} > @series@",
        severity=Severity.WARNING,
        summary="Replica {{ $labels.instance }} shows more series than it should",
        description="{{ $value }} samples in one scrape; the bound is @series@.",
    ),
)

CONTROLLER: Final = (
    Alert(
        name="QueueOperatorControllerDown",
        expression="max by (job) (queueoperator_controller_up{:op}) == 0",
        severity=Severity.CRITICAL,
        summary="No controller serves the custom resources",
        description="""New QueueJobs are not taken in and statuses are old. REST, gRPC and what runs
        go on.""",
    ),
    Alert(
        name="QueueOperatorControllerRestarts",
        expression="""sum by (job, instance)
        (increase(queueoperator_controller_restarts_total{:op}[10m])) > 2""",
        held="0s",
        severity=Severity.WARNING,
        summary="The controller of {{ $labels.instance }} is started again and again",
        description="{{ $value | humanize }} times in ten minutes it ended or hung.",
    ),
    Alert(
        name="QueueOperatorRefusedNamespaces",
        expression="max by (job) (queueoperator_controller_refused_namespaces{:op}) > 0",
        severity=Severity.WARNING,
        summary="QueueJobs of some namespaces are left alone",
        description="""{{ $value }} namespaces belong to an operator with another database, or their
        Lease cannot be written.""",
    ),
    Alert(
        name="QueueOperatorStatusLag",
        expression="""max by (job) (queueoperator_controller_status_lag_seconds{:op})
        > @statusLagSeconds@""",
        severity=Severity.WARNING,
        summary="Statuses of QueueJobs are old",
        description="""The oldest that is not written yet waits since
        {{ $value | humanizeDuration }}. The jobs themselves are not late by this.""",
    ),
    Alert(
        name="QueueOperatorApiThrottled",
        expression="""sum by (job)
        (increase(queueoperator_controller_throttled_total{:op}[5m])) > 10""",
        held="0s",
        severity=Severity.WARNING,
        summary="The API server throttles the controller",
        description="{{ $value | humanize }} answers 429 in five minutes.",
    ),
    Alert(
        name="QueueOperatorApiServerErrors",
        expression="""sum by (job)
        (increase(queueoperator_controller_api_requests_total{:op, code=~"5..|none"}[2m])) >= 5""",
        held="0s",
        severity=Severity.WARNING,
        summary="The API server fails or does not answer the controller",
        description="{{ $value | humanize }} requests of two minutes.",
    ),
    Alert(
        name="QueueOperatorComparisonOld",
        expression="""time() - max by (job)
        (queueoperator_controller_last_comparison_timestamp_seconds{:op} > 0)
        > @comparisonAgeSeconds@""",
        severity=Severity.WARNING,
        summary="QueueJobs were not compared with the store for a long time",
        description="""The last comparison ended {{ $value | humanizeDuration }} ago. Until the next
        one, what was missed stays missed.""",
    ),
)

WEBHOOKS: Final = (
    Alert(
        name="QueueOperatorWebhooksLate",
        expression="""max by (job) (queueoperator_webhook_oldest_due_seconds{:op})
        > @webhookDueSeconds@""",
        severity=Severity.WARNING,
        summary="Receivers of callback URLs are told late",
        description="""The oldest message that is due waits since {{ $value | humanizeDuration }}.
        Jobs do not wait for it.""",
    ),
    Alert(
        name="QueueOperatorWebhooksFail",
        expression="""sum by (job)
        (increase(queueoperator_webhook_deliveries_total{:op, outcome=~"failed|refused"}[10m]))
        >= @webhookFailures@""",
        held="0s",
        severity=Severity.WARNING,
        summary="Messages to callback URLs are given up",
        description="{{ $value | humanize }} in ten minutes; they can be sent again.",
    ),
)

DATABASE: Final = (
    Alert(
        name="QueueOperatorOldestTransaction",
        expression="""max by (job) (queueoperator_database_oldest_transaction_seconds{:op})
        > @oldestTransactionSeconds@""",
        severity=Severity.WARNING,
        summary="An old transaction holds up vacuum",
        description="""It is open since {{ $value | humanizeDuration }}. Dead rows pile up, and
        claims get slower.""",
    ),
    Alert(
        name="QueueOperatorDeadRows",
        expression="""max by (job, table) (queueoperator_database_dead_rows{:op}) > @deadRows@""",
        severity=Severity.WARNING,
        summary="Table {{ $labels.table }} has many dead rows",
        description="{{ $value | humanize }} rows wait for vacuum.",
    ),
    Alert(
        name="QueueOperatorDatabaseConnections",
        expression="""sum by (job) (queueoperator_database_connections{:op})
        > @databaseConnections@""",
        severity=Severity.WARNING,
        summary="The database has many connections",
        description="{{ $value }}; set the threshold to four fifths of `max_connections`.",
    ),
)

GROUPS: Final = (
    Group("queue-operator-promised", PROMISED),
    Group("queue-operator-jobs", JOBS),
    Group("queue-operator-workers", WORKERS),
    Group("queue-operator-replicas", REPLICAS),
    Group("queue-operator-controller", CONTROLLER),
    Group("queue-operator-webhooks", WEBHOOKS),
    Group("queue-operator-database", DATABASE),
)
ALERTS: Final = tuple(rule for group in GROUPS for rule in group.rules if isinstance(rule, Alert))
ALL: Final = (*RECORDED, *GROUPS)
TEXT: Final = document(ALL)
"""The rules file with placeholders."""
