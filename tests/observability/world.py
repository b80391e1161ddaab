"""A queue in good health as Prometheus would see it, and what each fault changes of that.

The same world feeds promtool, which computes it, and a real Prometheus, which scrapes it from an
HTTP server. Times are in seconds of the world, which a test lets pass faster than its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

STEP_S: Final = 15
"""How often the world is scraped."""
OPERATOR, WORKER = "queue-operator", "queue-worker"
INSTANCES: Final = {OPERATOR: "operator:9090", WORKER: "worker:9091"}


@dataclass(frozen=True)
class Gauge:
    """A value, and how much it rises in a second."""

    value: float
    slope: float = 0.0


@dataclass(frozen=True)
class Counter:
    """How much is counted in a second."""

    rate: float


@dataclass(frozen=True)
class Age:
    """A timestamp that lies so many seconds back."""

    seconds: float


Series = Gauge | Counter | Age
Figures = Mapping[str, Series]
"""Series by their name and labels, as in an exposition; of one target."""


def histogram(name: str, labels: str, rates: Mapping[str, float]) -> dict[str, Series]:
    """`rates`: how many a second were at most so many seconds, by `le`; the last is `+Inf`."""
    inner = f"{labels}," if labels else ""
    buckets: dict[str, Series] = {
        f'{name}_bucket{{{inner}le="{bound}"}}': Counter(rate) for bound, rate in rates.items()
    }
    outer = f"{{{labels}}}" if labels else ""
    return {**buckets, f"{name}_count{outer}": Counter(rates["+Inf"])}


def waits(in_time: float, late: float = 0.0, labels: str = "") -> dict[str, Series]:
    """Attempts a second that started in time, and that waited too long."""
    rates = {"1.0": in_time, "60.0": in_time, "120.0": in_time + late, "+Inf": in_time + late}
    return histogram("queueoperator_job_wait_seconds", labels or MAIL, rates)


MAIL: Final = 'namespace="shop",type="mail"'
_LAG: Final = {"0.1": 9.9, "0.5": 10.0, "1.0": 10.0, "+Inf": 10.0}
_HELD_UP: Final = {"0.1": 1.0, "0.5": 1.0, "1.0": 1.0, "+Inf": 10.0}


def attempts(outcome: str, error: str = "") -> str:
    return f'queueoperator_job_attempts_total{{{MAIL},outcome="{outcome}",error_class="{error}"}}'


def finished(state: str) -> str:
    return f'queueoperator_jobs_finished_total{{{MAIL},state="{state}"}}'


_JOBS: Final[Figures] = {
    f'queueoperator_jobs{{{MAIL},state="running"}}': Gauge(6),
    f'queueoperator_jobs{{{MAIL},state="cancelling"}}': Gauge(0),
    f'queueoperator_jobs{{{MAIL},state="initial_pending"}}': Gauge(8),
    f'queueoperator_jobs{{{MAIL},state="dead_letter"}}': Gauge(3),
    f"queueoperator_oldest_runnable_job_age_seconds{{{MAIL}}}": Gauge(1),
    'queueoperator_needed_slots{namespace="shop",pool=""}': Gauge(8),
    'queueoperator_worker_slots{namespace="shop",state="busy"}': Gauge(6),
    'queueoperator_worker_slots{namespace="shop",state="free"}': Gauge(4),
    f"queueoperator_jobs_submitted_total{{{MAIL}}}": Counter(10),
    **waits(10),
    attempts("completed"): Counter(9.9),
    attempts("failed", "temporary"): Counter(0.1),
    attempts("lost"): Counter(0),
    finished("completed"): Counter(9.9),
    finished("dead_letter"): Counter(0),
    f"queueoperator_leases_expired_total{{{MAIL}}}": Counter(0),
    "queueoperator_event_log_lag_seconds": Gauge(0.3),
    "queueoperator_unnamed_types": Gauge(0),
    "queueoperator_webhook_oldest_due_seconds": Gauge(0.2),
    "queueoperator_database_oldest_transaction_seconds": Gauge(2),
    'queueoperator_database_dead_rows{table="lease"}': Gauge(2000),
    'queueoperator_database_connections{state="idle"}': Gauge(12),
}
_REPLICA: Final[Figures] = {
    "queueoperator_leader": Gauge(1),
    "queueoperator_store_up": Gauge(1),
    "queueoperator_store_connection_waiters": Gauge(0),
    'queueoperator_store_errors_total{method="claim",code="unavailable"}': Counter(0),
    'queueoperator_store_errors_total{method="submit",code="duplicate"}': Counter(1),
    **histogram("queueoperator_event_loop_lag_seconds", 'process="server"', _LAG),
    'queueoperator_http_requests_total{method="POST",route="/v1/jobs",code="201"}': Counter(9),
    'queueoperator_http_requests_total{method="POST",route="/v1/jobs",code="404"}': Counter(1),
    'queueoperator_http_requests_total{method="POST",route="/v1/jobs",code="503"}': Counter(0),
    'queueoperator_grpc_calls_total{method="Session",code="ok"}': Counter(1),
    'queueoperator_grpc_calls_total{method="Session",code="cancelled"}': Counter(1),
    'queueoperator_grpc_calls_total{method="Session",code="unavailable"}': Counter(0),
}
_SENDER: Final[Figures] = {
    'queueoperator_webhook_deliveries_total{outcome="delivered"}': Counter(5),
    'queueoperator_webhook_deliveries_total{outcome="retried"}': Counter(1),
    'queueoperator_webhook_deliveries_total{outcome="failed"}': Counter(0),
    'queueoperator_webhook_deliveries_total{outcome="refused"}': Counter(0),
}
_CONTROLLER: Final[Figures] = {
    "queueoperator_controller_up": Gauge(1),
    "queueoperator_controller_restarts_total": Counter(0),
    "queueoperator_controller_refused_namespaces": Gauge(0),
    "queueoperator_controller_status_lag_seconds": Gauge(0.2),
    "queueoperator_controller_throttled_total": Counter(0),
    'queueoperator_controller_api_requests_total{code="200"}': Counter(20),
    'queueoperator_controller_api_requests_total{code="none"}': Counter(0),
    "queueoperator_controller_last_comparison_timestamp_seconds": Age(30),
}
_WORKER: Final[Figures] = {
    "queueworker_connected": Gauge(1),
    'queueworker_slots{state="busy"}': Gauge(6),
    'queueworker_slots{state="free"}': Gauge(4),
    "queueworker_last_heartbeat_answer_timestamp_seconds": Age(3),
    "queueworker_stuck_handlers": Gauge(0),
    **histogram("queueworker_event_loop_lag_seconds", 'loop="session"', _LAG),
}
HEALTHY: Final[Mapping[str, Figures]] = {
    OPERATOR: {**_JOBS, **_REPLICA, **_CONTROLLER, **_SENDER},
    WORKER: _WORKER,
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What changes, by target; `down` are targets that do not answer. `also` are other alerts that
    rightly speak of it too. `after_s` is how long all was well before.
    """

    operator: Figures = field(default_factory=dict)
    worker: Figures = field(default_factory=dict)
    down: tuple[str, ...] = ()
    also: frozenset[str] = frozenset()
    after_s: int = 300

    def of(self, target: str) -> Figures:
        return self.operator if target == OPERATOR else self.worker


_PICS: Final = 'namespace="shop",type="pics"'

FAULTS: Final[Mapping[str, Fault]] = {
    "QueueOperatorJobsStartLate": Fault(operator=waits(5, late=5)),
    "QueueOperatorJobsDie": Fault(
        operator={finished("dead_letter"): Counter(1), finished("completed"): Counter(9)},
        also=frozenset({"QueueOperatorDeadLetters"}),
    ),
    "QueueOperatorBacklogGrows": Fault(
        operator={
            'queueoperator_needed_slots{namespace="shop",pool=""}': Gauge(200_000, slope=1000),
            'queueoperator_worker_slots{namespace="shop",state="free"}': Gauge(0),
            'queueoperator_worker_slots{namespace="shop",state="busy"}': Gauge(10),
        }
    ),
    "QueueOperatorOldestJobTooOld": Fault(
        operator={f"queueoperator_oldest_runnable_job_age_seconds{{{MAIL}}}": Gauge(1000, slope=1)}
    ),
    "QueueOperatorTypeNotStarted": Fault(
        operator={f"queueoperator_oldest_runnable_job_age_seconds{{{_PICS}}}": Gauge(70, slope=1)}
    ),
    "QueueOperatorNoWorkers": Fault(
        operator={
            'queueoperator_worker_slots{namespace="shop",state="busy"}': Gauge(0),
            'queueoperator_worker_slots{namespace="shop",state="free"}': Gauge(0),
        }
    ),
    "QueueOperatorDeadLetters": Fault(
        operator={
            f'queueoperator_jobs_finished_total{{{_PICS},state="dead_letter"}}': Counter(0.1),
            finished("completed"): Counter(200),
        }
    ),
    "QueueOperatorTypeFails": Fault(
        operator={attempts("failed", "permanent"): Counter(20), attempts("completed"): Counter(1)}
    ),
    "QueueOperatorLeasesExpire": Fault(
        operator={f"queueoperator_leases_expired_total{{{MAIL}}}": Counter(0.2)}
    ),
    "QueueOperatorEventLogLag": Fault(
        operator={"queueoperator_event_log_lag_seconds": Gauge(90, slope=1)}
    ),
    "QueueOperatorUnnamedTypes": Fault(operator={"queueoperator_unnamed_types": Gauge(40)}),
    "QueueWorkerDown": Fault(down=(WORKER,)),
    "QueueWorkerDisconnected": Fault(worker={"queueworker_connected": Gauge(0)}),
    "QueueWorkerHeartbeatsUnanswered": Fault(
        worker={"queueworker_last_heartbeat_answer_timestamp_seconds": Age(90)}
    ),
    "QueueWorkerStuckHandlers": Fault(worker={"queueworker_stuck_handlers": Gauge(2)}),
    "QueueWorkerEventLoopLag": Fault(
        worker=histogram("queueworker_event_loop_lag_seconds", 'loop="session"', _HELD_UP)
    ),
    "QueueOperatorAbsent": Fault(down=(OPERATOR,), also=frozenset({"QueueOperatorReplicaDown"})),
    "QueueOperatorReplicaDown": Fault(down=(OPERATOR,), also=frozenset({"QueueOperatorAbsent"})),
    "QueueOperatorStoreDown": Fault(operator={"queueoperator_store_up": Gauge(0)}),
    "QueueOperatorNotOneLeader": Fault(operator={"queueoperator_leader": Gauge(0)}),
    "QueueOperatorPoolExhausted": Fault(
        operator={"queueoperator_store_connection_waiters": Gauge(7)}
    ),
    "QueueOperatorStoreErrors": Fault(
        operator={'queueoperator_store_errors_total{method="claim",code="unavailable"}': Counter(1)}
    ),
    "QueueOperatorEventLoopLag": Fault(
        operator=histogram("queueoperator_event_loop_lag_seconds", 'process="server"', _HELD_UP)
    ),
    "QueueOperatorRestErrors": Fault(
        operator={
            'queueoperator_http_requests_total{method="POST",route="/v1/jobs",code="503"}': Counter(
                4
            )
        }
    ),
    "QueueOperatorGrpcErrors": Fault(
        operator={'queueoperator_grpc_calls_total{method="Session",code="unavailable"}': Counter(1)}
    ),
    "QueueOperatorControllerDown": Fault(operator={"queueoperator_controller_up": Gauge(0)}),
    "QueueOperatorControllerRestarts": Fault(
        operator={"queueoperator_controller_restarts_total": Counter(0.05)}
    ),
    "QueueOperatorRefusedNamespaces": Fault(
        operator={"queueoperator_controller_refused_namespaces": Gauge(2)}
    ),
    "QueueOperatorStatusLag": Fault(
        operator={"queueoperator_controller_status_lag_seconds": Gauge(80, slope=1)}
    ),
    "QueueOperatorApiThrottled": Fault(
        operator={"queueoperator_controller_throttled_total": Counter(1)}
    ),
    "QueueOperatorApiServerErrors": Fault(
        operator={'queueoperator_controller_api_requests_total{code="none"}': Counter(1)}
    ),
    "QueueOperatorComparisonOld": Fault(
        operator={"queueoperator_controller_last_comparison_timestamp_seconds": Age(1000)},
        after_s=1020,
    ),
    "QueueOperatorWebhooksLate": Fault(
        operator={"queueoperator_webhook_oldest_due_seconds": Gauge(400, slope=1)}
    ),
    "QueueOperatorWebhooksFail": Fault(
        operator={'queueoperator_webhook_deliveries_total{outcome="failed"}': Counter(0.1)}
    ),
    "QueueOperatorOldestTransaction": Fault(
        operator={"queueoperator_database_oldest_transaction_seconds": Gauge(700, slope=1)}
    ),
    "QueueOperatorDeadRows": Fault(
        operator={'queueoperator_database_dead_rows{table="lease"}': Gauge(2e6)}
    ),
    "QueueOperatorDatabaseConnections": Fault(
        operator={'queueoperator_database_connections{state="idle"}': Gauge(95)}
    ),
}
"""By the alert that must speak. Those of slow burns and of series have tests of their own."""
APART: Final = frozenset(
    {"QueueOperatorJobsStartLateSlowly", "QueueOperatorJobsDieSlowly", "QueueOperatorTooManySeries"}
)


def value(series: Series, elapsed: float, now: float, since: float = 0.0) -> float:
    """Of a series after `elapsed` seconds; a counter has counted `since` before."""
    if isinstance(series, Gauge):
        return series.value + series.slope * elapsed
    if isinstance(series, Counter):
        return since + series.rate * elapsed
    return now - series.seconds


def values(
    series: Series | None, broken: Series | None, healthy_s: int, fault_s: int
) -> Iterator[float]:
    """A sample every STEP_S: healthy for a time, then broken. A counter goes on from where it was;
    a series that only a fault has is 0 before.
    """
    counted = series.rate * healthy_s if isinstance(series, Counter) else 0.0
    for elapsed in range(0, healthy_s, STEP_S):
        yield 0.0 if series is None else value(series, elapsed, elapsed)
    changed = broken or series
    assert changed is not None
    for elapsed in range(0, fault_s + STEP_S, STEP_S):
        passed = elapsed + (healthy_s if broken is None and isinstance(changed, Gauge) else 0)
        yield value(changed, passed, healthy_s + elapsed, counted)
