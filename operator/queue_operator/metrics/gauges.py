"""Gauges of the last look at the store and at the streams of this replica."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queue_operator.backends.protocol import QueueDepth
from queue_operator.domain.states import JobState
from queue_operator.metrics import registry as table
from queue_operator.metrics.labels import LabelBudget
from queue_operator.queue.protocol import StreamUsage

_BUSY, _FREE, _DRAINING = "busy", "free", "draining"


class Snapshot(Collector):
    """Serves the newest `depth` and `usage`; what is None is not served at all, since an old number
    or a zero would be taken for the truth, and `depth` only while this replica `leads`.
    """

    def __init__(self, labels: LabelBudget, version: str, replica: str) -> None:
        self.depth: QueueDepth | None = None
        self.usage: Sequence[StreamUsage] | None = None
        self.store_up: bool | None = None
        self.leads: Callable[[], bool] = lambda: True
        self._labels = labels
        self._build = (version, replica)

    def collect(self) -> Iterator[Metric]:
        """Called by the scrape, in its own thread."""
        yield _family(table.BUILD_INFO, {self._build: 1.0})
        depth, usage = self.depth, self.usage
        leads = self.leads()
        yield _family(table.LEADER, {(): float(leads)})
        if self.store_up is not None:
            yield _family(table.STORE_UP, {(): float(self.store_up)})
        if depth is not None and leads:
            yield from self._depth(depth)
        if usage is not None:
            yield from self._usage(usage)

    def _depth(self, depth: QueueDepth) -> Iterator[GaugeMetricFamily]:
        largest = sorted(depth.jobs.items(), key=lambda item: -item[1])
        self._labels.prefer((namespace, kind) for (namespace, kind, _), _ in largest)
        jobs: dict[tuple[str, ...], float] = defaultdict(float)
        dead: dict[tuple[str, ...], float] = defaultdict(float)
        for (namespace, kind, state), count in depth.jobs.items():
            pair = self._labels.pair(namespace, kind)
            jobs[*pair, state] += count
            dead[pair] += count if state == JobState.DEAD_LETTER else 0
        ages: dict[tuple[str, ...], float] = defaultdict(float)
        for (namespace, kind), age in depth.oldest_age_s.items():
            pair = self._labels.pair(namespace, kind)
            ages[pair] = max(ages[pair], age)
        yield _family(table.JOBS, jobs)
        yield _family(table.DEAD_LETTERS, dead)
        yield _family(table.OLDEST_AGE, ages)
        if depth.waiting_lanes is not None:
            yield _family(table.WAITING_LANES, {(): float(depth.waiting_lanes)})

    def _usage(self, usage: Sequence[StreamUsage]) -> Iterator[GaugeMetricFamily]:
        streams: dict[tuple[str, ...], float] = defaultdict(float)
        slots: dict[tuple[str, ...], float] = defaultdict(float)
        for stream in usage:
            namespace = self._labels.namespace(stream.spec.namespace)
            streams[namespace,] += 1
            idle = max(0, stream.spec.capacity - stream.busy)
            slots[namespace, _BUSY] += stream.busy
            slots[namespace, _FREE] += 0 if stream.draining else idle
            slots[namespace, _DRAINING] += idle if stream.draining else 0
        yield _family(table.WORKER_STREAMS, streams)
        yield _family(table.WORKER_SLOTS, slots)


def _family(metric: table.Metric, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
