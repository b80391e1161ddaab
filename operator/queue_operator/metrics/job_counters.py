"""Counters and histograms of the jobs, as the store's log tells them to the replica that leads."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from queue_operator.backends.figures import OTHER, Buckets, Counted, Pair, Spread, spread_of
from queue_operator.domain.states import Event
from queue_operator.metrics import registry as table
from queue_operator.metrics import scrapers
from queue_operator.metrics.registry import Metric
from queue_operator.metrics.scrapers import Audience, Scraper

OUTCOMES: Final[Mapping[str, str]] = {
    Event.COMPLETE: "completed",
    Event.FAIL: "failed",
    Event.EXHAUST: "failed",
    Event.STOP: "stopped",
    Event.STOP_WITH_RETRY: "stopped",
    Event.ACK_EXECUTING: "stopped",
    Event.MARK_UNKNOWN_STOPPED: "unknown",
    Event.ACK_UNKNOWN: "unknown",
    Event.RELEASE: "released",
    Event.HAND_BACK: "handed_back",
    Event.LOSE: "lost",
}
"""The outcome label by the event that ends an attempt."""
WITH_CLASS: Final = ("failed", "stopped")
"""Outcomes that are told apart by the category of their error."""
EXPIRED: Final = (Event.LOSE, Event.MARK_UNKNOWN_STOPPED)
BUCKETS: Final = Buckets(wait=table.WAIT.buckets, run=table.RUN.buckets)

Labels = tuple[str, ...]
Series = tuple[str, Labels]
_ALL: Final = (OTHER, OTHER)
_NOT_ALL: Final = -1


class JobCounters(Collector):
    """Counts what it is told, and shows it while `is_shown` says so. A series is 0 when it is first
    shown, whatever it has counted: only then does the first step show in `increase`. So it is for
    each who scrapes at that time; to whoever comes later, its value may be known from before.
    """

    def __init__(
        self, is_shown: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_shown = is_shown
        self._guard = threading.Lock()
        self._counts: dict[Metric, dict[Labels, int]] = {
            metric: {}
            for metric in (table.ENQUEUED, table.ATTEMPTS, table.FINISHED, table.LEASES_EXPIRED)
        }
        self._spreads: dict[Metric, dict[Pair, Spread]] = {table.WAIT: {}, table.RUN: {}}
        self._begun: set[Series] = set()
        # Who scraped when the series was first shown to another, and still has to see it as 0.
        self._unbegun: dict[Series, frozenset[Scraper]] = {}
        self._audience = Audience(monotonic)
        # Rises with all that is counted.
        self._state = self._told_state = 0
        self._look = _Look(scrapers.UNKNOWN, frozenset())

    @property
    def is_told(self) -> bool:
        """Whether everybody who scrapes was shown all that is counted; somebody, where nobody has
        come lately.
        """
        return not self.untold

    @property
    def untold(self) -> frozenset[str]:
        """The addresses of those who were not shown it; "" for nobody in particular."""
        with self._guard:
            lately = self._audience.lately()
            if not lately:
                return frozenset() if self._told_state == self._state else frozenset({""})
            return frozenset(one.address for one, at in lately.items() if at != self._state)

    def scraped_within(self, seconds: float) -> bool:
        return self._audience.within(seconds)

    def add(self, counted: Counted) -> None:
        with self._guard:
            for pair, n in counted.submitted.items():
                self._count(table.ENQUEUED, pair, n)
            for (namespace, kind, event, category), n in counted.attempts.items():
                # That of a later release has its own name.
                outcome = OUTCOMES.get(event, event.lower())
                error_class = category.lower() if outcome in WITH_CLASS else ""
                self._count(table.ATTEMPTS, (namespace, kind, outcome, error_class), n)
                if event in EXPIRED:
                    self._count(table.LEASES_EXPIRED, (namespace, kind), n)
            for (namespace, kind, state), n in counted.finished.items():
                self._count(table.FINISHED, (namespace, kind, state.lower()), n)
            for metric, spreads in ((table.WAIT, counted.waits), (table.RUN, counted.runs)):
                for pair, spread in spreads.items():
                    self._spread(metric, pair).add(spread)
                    self._state += 1

    def keep(self, names: frozenset[Pair]) -> None:
        """Forgets the series of what is not shown by name any more, and begins those of what is."""
        with self._guard:
            kept = names | {_ALL}
            for counts in self._counts.values():
                for labels in [each for each in counts if each[:2] not in kept]:
                    del counts[labels]
            for spreads in self._spreads.values():
                for pair in spreads.keys() - kept:
                    del spreads[pair]
            self._begun = {begun for begun in self._begun if begun[1][:2] in kept}
            for begun in self._unbegun.keys() - self._begun:
                del self._unbegun[begun]
            for pair in names:
                for counter in (table.ENQUEUED, table.LEASES_EXPIRED):
                    self._counts[counter].setdefault(pair, 0)
                for metric in self._spreads:
                    self._spread(metric, pair)

    def collect(self) -> Iterator[Family]:
        """Called by the scrape, in its own thread."""
        whose = scrapers.current.get()
        if not self._is_shown():
            with self._guard:
                self._audience.sent_away(whose, self._state)
            return
        with self._guard:
            self._look = _Look(whose, frozenset(self._audience.lately()) - {whose})
            families = [
                *(self._counter(metric) for metric in self._counts),
                *(self._histogram(metric) for metric in self._spreads),
            ]
            if self._look.shows_all:
                self._told_state = self._state
            self._audience.shown(whose, self._state if self._look.shows_all else _NOT_ALL)
        yield from families

    def _count(self, metric: Metric, labels: Labels, n: int) -> None:
        series = self._counts[metric]
        series[labels] = series.get(labels, 0) + n
        if n:
            self._state += 1

    def _spread(self, metric: Metric, pair: Pair) -> Spread:
        return spread_of(self._spreads[metric], pair, len(metric.buckets) + 1)

    def _counter(self, metric: Metric) -> Family:
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, n in self._counts[metric].items():
            family.add_metric(labels, n if self._has_begun(metric, labels, n) else 0)
        return family

    def _histogram(self, metric: Metric) -> Family:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for pair, spread in self._spreads[metric].items():
            counts, total_us = spread.counts, spread.total_us
            if not self._has_begun(metric, pair, sum(counts)):
                counts, total_us = [0] * len(counts), 0
            family.add_metric(pair, _cumulative(metric, counts), total_us / 1_000_000)
        return family

    def _has_begun(self, metric: Metric, labels: Labels, n: int) -> bool:
        key, look = (metric.name, labels), self._look
        if key not in self._begun:
            self._begun.add(key)
            if look.others:
                self._unbegun[key] = look.others
        elif look.whose not in (waiting := self._unbegun.get(key, frozenset())):
            return True
        elif others := waiting - {look.whose}:
            self._unbegun[key] = others
        else:
            del self._unbegun[key]
        if n:
            look.shows_all = False
        return False


@dataclass(slots=True)
class _Look:
    """One scrape, and who else scrapes."""

    whose: Scraper
    others: frozenset[Scraper]
    shows_all: bool = True


def _cumulative(metric: Metric, counts: list[int]) -> list[tuple[str, float]]:
    """Each bucket of the exposition counts those below it too."""
    buckets, below = [], 0
    for bound, count in zip((*map(float, metric.buckets), inf), counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound == inf else str(bound), float(below)))
    return buckets
