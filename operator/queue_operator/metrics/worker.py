"""What a worker counts, and how it is scraped. Loaded only where a worker is asked for it: the
base install has no prometheus_client.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from queue_operator.domain.hosts import EVERY
from queue_operator.metrics import worker_table as table
from queue_operator.metrics.registry import Metric
from queue_operator.metrics.serving import serve
from queue_operator.metrics.tally import Tally, TallyHistogram

OTHER: Final = "other"
MAX_TYPES: Final = 200
"""Types of jobs that get series of their own; those of other handlers are `other`."""

Labels = tuple[str, ...]


class Look(Protocol):
    """How a worker stands at one moment."""

    @property
    def connected(self) -> bool: ...

    @property
    def busy(self) -> int: ...

    @property
    def free(self) -> int: ...

    @property
    def handlers(self) -> int: ...

    @property
    def unsent(self) -> int: ...

    @property
    def stuck(self) -> int: ...


class WorkerFigures(Collector):
    """Written by the thread of the session, but `late`, which each loop calls for itself; read by
    that of a scrape. `ends` are the pairs of outcome and error class that every type begins with,
    at 0; `look` is called at each scrape.
    """

    def __init__(
        self,
        info: tuple[str, str, str],
        ends: Iterable[tuple[str, str]],
        look: Callable[[], Look],
    ) -> None:
        self.registry = CollectorRegistry()
        self._info = info
        self._ends = tuple(ends)
        self._look = look
        self._sessions = 0
        self._heartbeats = 0
        self._lost = 0
        self._answered_at: float | None = None
        self._attempts: dict[Labels, int] = {}
        self._types: dict[str, Tally] = {}
        self.registry.register(self)
        self._runs = TallyHistogram(table.ATTEMPT_SECONDS, self.registry)
        self._answers = TallyHistogram(table.ANSWER_SECONDS, self.registry).of()
        self._lag = TallyHistogram(table.LOOP_LAG, self.registry)
        ProcessCollector(registry=self.registry)

    def serve(self, port: int) -> Callable[[], None]:
        """On every address of this machine, until what it gives is called. Raises OSError."""
        server, thread = serve(EVERY, port, self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop

    def know(self, types: Iterable[str]) -> None:
        """These have handlers: their series are there from now on."""
        for type_ in types:
            if type_ not in self._types and len(self._types) < MAX_TYPES:
                self._show(type_)

    def _show(self, label: str) -> Tally:
        self._attempts |= {(label, *end): 0 for end in self._ends}
        runs = self._types[label] = self._runs.of(label)
        return runs

    def session_begun(self) -> None:
        self._sessions += 1

    def ended(self, type: str, outcome: str, error_class: str, seconds: float | None) -> None:
        """An attempt ended, so many seconds after its handler began, None if it never did."""
        runs = self._types.get(type)
        if runs is None:
            type = OTHER
            runs = self._types.get(OTHER) or self._show(OTHER)
        key = (type, outcome, error_class)
        self._attempts[key] = self._attempts.get(key, 0) + 1
        if seconds is not None:
            runs.observe(seconds)

    def lease_lost(self) -> None:
        self._lost += 1

    def beat(self) -> None:
        self._heartbeats += 1

    def answered(self, seconds: float) -> None:
        """The operator has answered a heartbeat that was sent so many seconds ago."""
        self._answers.observe(seconds)
        self._answered_at = time.time()

    def late(self, loop: str) -> Callable[[float], None]:
        """Takes how late a timer of this loop fired."""
        return self._lag.of(loop).observe

    def collect(self) -> Iterator[Family]:
        look = self._look()
        yield _gauge(table.INFO, {self._info: 1})
        yield _gauge(table.CONNECTED, {(): look.connected})
        yield _counter(table.SESSIONS, {(): self._sessions})
        yield _gauge(table.SLOTS, {("busy",): look.busy, ("free",): look.free})
        yield _gauge(table.HANDLERS, {(): look.handlers})
        yield _counter(table.ATTEMPTS, dict(self._attempts))
        yield _gauge(table.UNSENT, {(): look.unsent})
        yield _counter(table.HEARTBEATS, {(): self._heartbeats})
        if self._answered_at is not None:
            yield _gauge(table.LAST_ANSWER, {(): self._answered_at})
        yield _counter(table.LEASES_LOST, {(): self._lost})
        yield _gauge(table.STUCK, {(): look.stuck})


def _gauge(metric: Metric, values: Mapping[Labels, float]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    return _filled(family, values)


def _counter(metric: Metric, values: Mapping[Labels, float]) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    return _filled(family, values)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[Labels, float]
) -> Family:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
