"""The one table of every metric. Its documentation is generated from it."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from queue_operator.metrics.replica_table import REPLICA
from queue_operator.metrics.rows import Kind as Kind
from queue_operator.metrics.rows import Metric as Metric

_SHORT_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAIT_BUCKETS_S: Final = (*_SHORT_S, 120, 300, 600, 1800, 3600, 10800, 43200, 86400)
_RUN_BUCKETS_S: Final = (*_SHORT_S, 120, 300, 600, 1800, 3600, 7200, 14400)
_CALL_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

JOBS: Final = Metric(
    name="queueoperator_jobs",
    kind=Kind.GAUGE,
    labels=("namespace", "type", "state"),
    help="Stored jobs by state. From the leader only.",
)
OLDEST_AGE: Final = Metric(
    name="queueoperator_oldest_runnable_job_age_seconds",
    kind=Kind.GAUGE,
    labels=("namespace", "type"),
    help="Age of the oldest job that could run now. From the leader only.",
)
DEAD_LETTERS: Final = Metric(
    name="queueoperator_dead_letters",
    kind=Kind.GAUGE,
    labels=("namespace", "type"),
    help="Jobs that failed for good and wait for somebody to look. From the leader only.",
)
WAITING_LANES: Final = Metric(
    name="queueoperator_waiting_lanes",
    kind=Kind.GAUGE,
    help="Combinations of namespace, type, priority and tags that have waiting jobs, in a store "
    "on Postgres. A hundred thousand make a look at the gauges take a second. From the leader "
    "only.",
)
WORKER_STREAMS: Final = Metric(
    name="queueoperator_worker_streams",
    kind=Kind.GAUGE,
    labels=("namespace",),
    help="Worker streams open on this replica.",
)
WORKER_SLOTS: Final = Metric(
    name="queueoperator_worker_slots",
    kind=Kind.GAUGE,
    labels=("namespace", "state"),
    help="Slots of the streams of this replica: busy, free, or draining (empty, takes no job).",
)
BUILD_INFO: Final = Metric(
    name="queueoperator_build_info",
    kind=Kind.GAUGE,
    labels=("version", "replica"),
    help="Always 1; the labels say what runs.",
)
LEADER: Final = Metric(
    name="queueoperator_leader",
    kind=Kind.GAUGE,
    help="1 on the replica whose turn it is to show the figures about the stored jobs, 0 on the "
    "others, which show none of them. When it ends another takes its turn within seconds.",
)
STORE_UP: Final = Metric(
    name="queueoperator_store_up",
    kind=Kind.GAUGE,
    help="1 if the last look of this replica at the store succeeded, else 0; then the gauges about "
    "the stored jobs are not shown.",
)
ENQUEUED: Final = Metric(
    name="queueoperator_jobs_submitted_total",
    kind=Kind.COUNTER,
    labels=("namespace", "type"),
    help="Jobs stored through the REST door of this replica. Those of custom resources are "
    "stored by the controller's process, which is not measured: see queueoperator_jobs.",
)
ATTEMPTS: Final = Metric(
    name="queueoperator_job_attempts_total",
    kind=Kind.COUNTER,
    labels=("namespace", "type", "outcome", "error_class"),
    help="Attempts whose outcome reached this replica. outcome: completed, failed, stopped, "
    "unknown, released, handed_back; error_class: the error's category, empty for none.",
)
FINISHED: Final = Metric(
    name="queueoperator_jobs_finished_total",
    kind=Kind.COUNTER,
    labels=("namespace", "type", "outcome"),
    help="Jobs ended by a worker's outcome on this replica; outcome is the final state, lower "
    "case. Not those ended by a cancel alone, or by the sweeper.",
)
WAIT: Final = Metric(
    name="queueoperator_job_wait_seconds",
    kind=Kind.HISTOGRAM,
    labels=("namespace", "type"),
    buckets=_WAIT_BUCKETS_S,
    help="From when a job could be claimed to its assignment, for every attempt; delays and "
    "backoffs are left out.",
)
RUN: Final = Metric(
    name="queueoperator_job_run_seconds",
    kind=Kind.HISTOGRAM,
    labels=("namespace", "type"),
    buckets=_RUN_BUCKETS_S,
    help="From the assignment of an attempt to its outcome, for attempts assigned by this replica.",
)
LEASES_EXPIRED: Final = Metric(
    name="queueoperator_leases_expired_total",
    kind=Kind.COUNTER,
    labels=("namespace",),
    help="Jobs that the sweeper of this replica took from a worker: the lease ran out, the "
    "execution timeout passed, or a cancel was not obeyed in time.",
)
STALE_TOKENS: Final = Metric(
    name="queueoperator_stale_outcomes_total",
    kind=Kind.COUNTER,
    labels=("namespace",),
    help="Outcomes refused because another worker had claimed the job since.",
)
STORE_CALLS: Final = Metric(
    name="queueoperator_store_call_seconds",
    kind=Kind.HISTOGRAM,
    labels=("method",),
    buckets=_CALL_BUCKETS_S,
    help="Duration of calls to the store, refused and failed ones included.",
)
STORE_ERRORS: Final = Metric(
    name="queueoperator_store_errors_total",
    kind=Kind.COUNTER,
    labels=("method", "code"),
    help="Calls to the store that raised, by error code.",
)

METRICS: Final = (
    JOBS,
    OLDEST_AGE,
    DEAD_LETTERS,
    WAITING_LANES,
    ENQUEUED,
    ATTEMPTS,
    FINISHED,
    WAIT,
    RUN,
    LEASES_EXPIRED,
    STALE_TOKENS,
    WORKER_STREAMS,
    WORKER_SLOTS,
    STORE_CALLS,
    STORE_ERRORS,
    LEADER,
    STORE_UP,
    BUILD_INFO,
    *REPLICA,
)


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry) -> Histogram:
    return Histogram(
        metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=registry
    )
