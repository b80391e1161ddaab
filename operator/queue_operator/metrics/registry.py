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
    help="Stored jobs by state.",
)
OLDEST_AGE: Final = Metric(
    name="queueoperator_oldest_runnable_job_age_seconds",
    kind=Kind.GAUGE,
    labels=("namespace", "type"),
    help="Age of the oldest job that could run now, 0 for none.",
)
WAITING_LANES: Final = Metric(
    name="queueoperator_waiting_lanes",
    kind=Kind.GAUGE,
    help="Combinations of namespace, type, priority and tags that have waiting jobs, in a store "
    "on Postgres. A hundred thousand make a look at the gauges take a second.",
)
NEEDED_SLOTS: Final = Metric(
    name="queueoperator_needed_slots",
    kind=Kind.GAUGE,
    labels=("namespace", "pool"),
    help="Jobs that run or could run now, by the value of their tag `pool=...` (empty without "
    "one): the slots that would run all of them at once. What is delayed, paused or suspended, or "
    "waits for other jobs, is not in it; quotas are not looked at. Where more than 10,000 jobs of "
    "the same type, priority and tags wait for something, no more than 10,000 others count.",
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
    help="Jobs stored, through whatever door.",
)
ATTEMPTS: Final = Metric(
    name="queueoperator_job_attempts_total",
    kind=Kind.COUNTER,
    labels=("namespace", "type", "outcome", "error_class"),
    help="Attempts that ended. outcome: completed, failed, stopped, unknown, released, handed_back "
    "or lost (the sweeper, or a caller, took it from its worker; what that one says late changes "
    "nothing here). error_class, of failed and stopped: temporary, permanent, timeout or system; "
    "else empty.",
)
FINISHED: Final = Metric(
    name="queueoperator_jobs_finished_total",
    kind=Kind.COUNTER,
    labels=("namespace", "type", "state"),
    help="Jobs that reached a final state, by whatever means; one that is retried by hand, or "
    "whose completion comes late, reaches another.",
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
    help="From the assignment of an attempt to its end, for every attempt that ended.",
)
LEASES_EXPIRED: Final = Metric(
    name="queueoperator_leases_expired_total",
    kind=Kind.COUNTER,
    labels=("namespace", "type"),
    help="Attempts taken from a worker: its lease ran out, or it did not obey a cancel in time. "
    "One whose execution timeout passed is a failed attempt with error_class timeout instead.",
)
EVENT_LOG_LAG: Final = Metric(
    name="queueoperator_event_log_lag_seconds",
    kind=Kind.GAUGE,
    help="Age of the oldest event that the counters of jobs did not contain at the last look, 0 "
    "for none.",
)
UNNAMED_TYPES: Final = Metric(
    name="queueoperator_unnamed_types",
    kind=Kind.GAUGE,
    help="Pairs of namespace and type with jobs that are shown together as type `other`.",
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
    help="Calls to the store that raised, by error code; `unexpected` is a fault of ours.",
)

ABOUT_JOBS: Final = (
    JOBS,
    OLDEST_AGE,
    WAITING_LANES,
    NEEDED_SLOTS,
    ENQUEUED,
    ATTEMPTS,
    FINISHED,
    WAIT,
    RUN,
    LEASES_EXPIRED,
    EVENT_LOG_LAG,
    UNNAMED_TYPES,
)
"""What only the leader shows."""

METRICS: Final = (
    *ABOUT_JOBS,
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
