"""What is shown of the controller's process."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import HistogramMetricFamily, Metric

from queue_operator.metrics import replica_table as table
from queue_operator.metrics.shown import add_histogram, by, counter, gauge, one

PROCESS = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFigures:
    """What is counted of the controller of this replica. Counters go on when its process is
    started again. `lag_counts` are by `table.LAG_BUCKETS_S`, with those above all of them.
    """

    up: bool
    restarts: int
    over_quota: int
    refused_namespaces: int
    owned_namespaces: int = 0
    intake_backlog: int = 0
    status_backlog: int = 0
    status_lag_s: float = 0.0
    status_writes: Mapping[str, int] = field(default_factory=dict)
    api_requests: Mapping[str, int] = field(default_factory=dict)
    throttled: int = 0
    watch_restarts: Mapping[str, int] = field(default_factory=dict)
    compared_at_s: float | None = None
    comparison_s: float = 0.0
    lag_counts: Sequence[int] = (0,) * (len(table.LAG_BUCKETS_S) + 1)
    lag_total_s: float = 0.0
    cpu_s: float = 0.0
    resident_bytes: int | None = None


def shown(figures: ControllerFigures) -> Iterator[Metric]:
    """As metrics."""
    yield gauge(table.CONTROLLER_UP, one(figures.up))
    yield counter(table.CONTROLLER_RESTARTS, one(figures.restarts))
    yield gauge(table.OVER_QUOTA, one(figures.over_quota))
    yield gauge(table.REFUSED_NAMESPACES, one(figures.refused_namespaces))
    yield gauge(table.OWNED_NAMESPACES, one(figures.owned_namespaces))
    yield gauge(table.INTAKE_BACKLOG, one(figures.intake_backlog))
    yield gauge(table.STATUS_BACKLOG, one(figures.status_backlog))
    yield gauge(table.STATUS_LAG, one(figures.status_lag_s))
    yield counter(table.STATUS_WRITES, by(figures.status_writes))
    yield counter(table.API_REQUESTS, by(figures.api_requests))
    yield counter(table.THROTTLED, one(figures.throttled))
    yield counter(table.WATCH_RESTARTS, by(figures.watch_restarts))
    if figures.compared_at_s is not None:
        yield gauge(table.COMPARED_AT, one(figures.compared_at_s))
        yield gauge(table.COMPARISON, one(figures.comparison_s))
    yield counter(table.CONTROLLER_CPU, one(figures.cpu_s))
    if figures.resident_bytes is not None:
        yield gauge(table.CONTROLLER_MEMORY, one(figures.resident_bytes))


def add_lag(family: HistogramMetricFamily, figures: ControllerFigures) -> None:
    """To the histogram of all event loops."""
    add_histogram(family, (PROCESS,), table.LAG_BUCKETS_S, figures.lag_counts, figures.lag_total_s)
