"""Gauges of the last look at the store and at the streams of this replica."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queue_operator.backends.figures import OTHER, Pair, Stock
from queue_operator.backends.protocol import QueueDepth
from queue_operator.domain.states import JobState
from queue_operator.metrics import registry as table
from queue_operator.metrics.labels import MAX_NAMESPACES, LabelBudget
from queue_operator.queue.protocol import StreamUsage

MAX_POOLS: Final = 100
MAX_PLACES: Final = 500
"""Combinations of a namespace and a pool."""

_BUSY, _FREE, _DRAINING = "busy", "free", "draining"


class Snapshot(Collector):
    """Serves the newest `stock` and `usage`; what is None is not served at all, since an old number
    or a zero would be taken for the truth, and `stock` only while this replica `leads`.
    """

    def __init__(self, version: str, replica: str) -> None:
        self.stock: Stock | None = None
        self.lag_s: float | None = None
        self.names: frozenset[Pair] | None = None
        self.usage: Sequence[StreamUsage] | None = None
        self.store_up: bool | None = None
        self.leads: Callable[[], bool] = lambda: True
        self._build = (version, replica)

    def collect(self) -> Iterator[Metric]:
        """Called by the scrape, in its own thread."""
        yield _family(table.BUILD_INFO, {self._build: 1.0})
        stock, usage = self.stock, self.usage
        leads = self.leads()
        yield _family(table.LEADER, {(): float(leads)})
        if self.store_up is not None:
            yield _family(table.STORE_UP, {(): float(self.store_up)})
        if stock is not None and leads:
            yield from _stock(stock)
            if self.lag_s is not None:
                yield _family(table.EVENT_LOG_LAG, {(): self.lag_s})
        if usage is not None:
            yield from self._usage(usage)

    def _namespaces(self, usage: Sequence[StreamUsage]) -> frozenset[str]:
        """Those that the store names first, so that they are the same on all replicas, and then
        those of the alphabet's beginning.
        """
        named = {namespace for namespace, _ in self.names or ()}
        spaces = {stream.spec.namespace for stream in usage}
        others = sorted(spaces - named)
        return frozenset((spaces & named) | {*others[:MAX_NAMESPACES]})

    def _usage(self, usage: Sequence[StreamUsage]) -> Iterator[GaugeMetricFamily]:
        streams: dict[tuple[str, ...], float] = defaultdict(float)
        slots: dict[tuple[str, ...], float] = defaultdict(float)
        shown = self._namespaces(usage)
        for stream in usage:
            space = stream.spec.namespace
            namespace = space if space in shown else OTHER
            streams[namespace,] += 1
            idle = max(0, stream.spec.capacity - stream.busy)
            slots[namespace, _BUSY] += stream.busy
            slots[namespace, _FREE] += 0 if stream.draining else idle
            slots[namespace, _DRAINING] += idle if stream.draining else 0
        yield _family(table.WORKER_STREAMS, streams)
        yield _family(table.WORKER_SLOTS, slots)


def stock_of(depth: QueueDepth, labels: LabelBudget) -> Stock:
    """What a store tells that names nothing itself; the largest types get the names."""
    kinds: Counter[Pair] = Counter()
    for (namespace, kind, _), count in depth.jobs.items():
        kinds[namespace, kind] += count
    labels.prefer(pair for pair, _ in kinds.most_common())
    jobs: Counter[tuple[str, str, str]] = Counter()
    for (namespace, kind, state), count in depth.jobs.items():
        jobs[*labels.pair(namespace, kind), state] += count
    ages: dict[Pair, float] = {}
    for pair, age in depth.oldest_age_s.items():
        name = labels.pair(*pair)
        ages[name] = max(age, ages.get(name, age))
    return Stock(
        names=labels.names,
        jobs=jobs,
        oldest_age_s=ages,
        waiting_lanes=depth.waiting_lanes,
        unnamed=sum(labels.pair(*pair) != pair for pair in kinds),
    )


def _stock(stock: Stock) -> Iterator[GaugeMetricFamily]:
    """Whatever is shown by name has all states: a queue that was emptied shows 0, at once."""
    names = stock.names | {(namespace, kind) for namespace, kind, _ in stock.jobs}
    yield _family(
        table.JOBS,
        {
            (*pair, state.lower()): float(stock.jobs.get((*pair, state), 0))
            for pair in names
            for state in JobState
        },
    )
    yield _family(table.OLDEST_AGE, {pair: stock.oldest_age_s.get(pair, 0.0) for pair in names})
    if stock.waiting_lanes is not None:
        yield _family(table.WAITING_LANES, {(): float(stock.waiting_lanes)})
    if stock.needed_slots:
        yield _family(table.NEEDED_SLOTS, _slots(stock))
    yield _family(table.UNNAMED_TYPES, {(): float(stock.unnamed)})


def _slots(stock: Stock) -> dict[tuple[str, ...], float]:
    """By namespaces that are shown, and pools as far as there are names for them: the first ones of
    the alphabet, so that they are the same whoever leads.
    """
    spaces = {namespace for namespace, _ in stock.names}
    pools = sorted({pool for _, pool in stock.needed_slots})[:MAX_POOLS]
    slots: dict[tuple[str, ...], float] = {(namespace, ""): 0.0 for namespace in spaces}
    for (namespace, pool), n in sorted(stock.needed_slots.items()):
        place = namespace if namespace in spaces else OTHER, pool if pool in pools else OTHER
        if place not in slots and len(slots) >= MAX_PLACES:
            place = OTHER, OTHER
        slots[place] = slots.get(place, 0.0) + n
    return slots


def _family(metric: table.Metric, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
