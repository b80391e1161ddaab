"""How a replica that ends leaves what it counted."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key

from queue_operator.backends.figures import Buckets, Counted, Naming, Pair, Stock
from queue_operator.domain.errors import Unavailable
from queue_operator.metrics.job_counters import JobCounters
from queue_operator.metrics.leading import Leader
from queue_operator.metrics.telling import Telling
from queue_operator.settings import MetricsSettings

MAIL: Pair = ("ns", "mail")
SUBMITTED = key("queueoperator_jobs_submitted_total", namespace="ns", type="mail")


@dataclass
class Store:
    """One who leads whenever it is asked."""

    waiting: int = 0
    fails: bool = False
    resigned: bool = False

    async def lead(self, holder: str, ttl_s: float) -> bool:
        return True

    async def resign(self, holder: str) -> None:
        self.resigned = True

    async def stock(self, naming: Naming) -> Stock:
        return Stock(names=frozenset({MAIL}))

    async def names(self) -> frozenset[Pair]:
        return frozenset({MAIL})

    async def count(self, holder: str, naming: Naming, buckets: Buckets) -> Counted:
        if self.fails:
            raise Unavailable("away")
        counted = Counted()
        counted.submitted[MAIL], self.waiting = self.waiting, 0
        return counted

    async def lag_s(self) -> float:
        return 0.0


@dataclass
class Bench:
    """A replica, and a scraper that comes with some of the sleeps."""

    store: Store = field(default_factory=Store)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    now: float = 0.0
    during_sleep: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.leader = Leader(self.store, self, 6.0)
        self.counters = JobCounters(self.shows, self.monotonic)
        self.registry.register(self.counters)
        settings = MetricsSettings(linger_s=16.0)
        self.telling = Telling(self.store, self.leader, self.counters, settings, self)

    def shows(self) -> bool:
        return self.leader.leads or self.telling.lingers

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.now += delay_s
        self.during_sleep()

    def scrape(self) -> float | None:
        return exposition.of(self.registry).get(SUBMITTED)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.leader.beat()
    await bench.telling.look()
    return bench


async def test_what_was_counted_last_is_scraped_before_the_end(bench: Bench) -> None:
    assert bench.scrape() == 0
    bench.store.waiting = 7
    scraped: list[float | None] = []

    def scrape_at_ten() -> None:
        if bench.now >= 10 and not scraped:
            assert bench.store.resigned
            assert not bench.leader.leads
            scraped.append(bench.scrape())

    bench.during_sleep = scrape_at_ten
    await bench.telling.end()
    assert scraped == [7]
    assert 10 <= bench.now < 11


async def test_nobody_who_scrapes_is_waited_for_in_vain_for_longer_than_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.scrape()
    bench.store.waiting = 7
    await bench.telling.end()
    assert 16 <= bench.now < 17
    assert "the last counts of jobs were not scraped within 16 s" in caplog.text


async def test_where_nobody_scrapes_it_ends_at_once(bench: Bench) -> None:
    bench.store.waiting = 7
    await bench.telling.end()
    assert bench.now == 0
    assert bench.store.resigned


async def test_what_was_told_is_not_told_again(bench: Bench) -> None:
    bench.scrape()
    await bench.telling.end()
    assert bench.now < 1


async def test_a_store_that_is_away_ends_nobody_s_stop(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.scrape()
    bench.store.fails = True
    await bench.telling.end()
    assert "end without a last look at the store: away" in caplog.text
