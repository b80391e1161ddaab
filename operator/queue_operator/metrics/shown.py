"""Metrics that are read where they are known, at each scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from queue_operator.metrics import rows

Values = Mapping[tuple[str, ...], float]
"""By the values of the labels."""


class Shown(Collector):
    """Serves what `read` gives. It is called by the scrape, in a thread of its own, and must not
    raise: there would be no scrape at all.
    """

    def __init__(self, registry: CollectorRegistry, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: to register it is no reason to read."""
        yield from ()

    def collect(self) -> Iterable[Metric]:
        return self._read()


class Sums(Collector):
    """A counter of any number of series, cheaper than prometheus_client's: written by one thread,
    without a lock.
    """

    def __init__(self, metric: rows.Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self._sums: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def add(self, *labels: str) -> None:
        """One more."""
        self._sums[labels] = self._sums.get(labels, 0) + 1

    def describe(self) -> Iterator[Metric]:
        yield counter(self._metric, {})

    def collect(self) -> Iterator[Metric]:
        yield counter(self._metric, dict(self._sums))


def one(value: float) -> Values:
    """The value of a metric without labels."""
    return {(): float(value)}


def by(values: Mapping[str, float]) -> Values:
    """Of a metric with one label."""
    return {(label,): float(value) for label, value in values.items()}


def gauge(metric: rows.Metric, values: Values) -> Metric:
    return _filled(GaugeMetricFamily(metric.name, metric.help, labels=metric.labels), values)


def counter(metric: rows.Metric, values: Values) -> Metric:
    return _filled(CounterMetricFamily(metric.name, metric.help, labels=metric.labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def add_histogram(
    family: HistogramMetricFamily,
    labels: tuple[str, ...],
    bounds: Iterable[float],
    counts: Iterable[int],
    total: float,
) -> None:
    """A series of which `counts` has one more than `bounds`: what is above all of them."""
    buckets, below = [], 0
    for bound, count in zip((*(str(float(b)) for b in bounds), "+Inf"), counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    family.add_metric(labels, buckets, total)
