"""How a replica that ends leaves what it counted."""

import asyncio
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
    fault: Exception | None = None
    hangs: bool = False
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
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
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
        return self.telling.shows_counters

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
    bench.store.fault = Unavailable("away")
    await bench.telling.end()
    assert "end without a last look at the store: away" in caplog.text


async def test_what_was_counted_before_the_turn_was_over_is_shown_once(bench: Bench) -> None:
    assert bench.scrape() == 0
    bench.store.waiting = 7
    await bench.telling.look()
    bench.now += 60
    assert not bench.leader.leads
    assert bench.scrape() == 7
    assert bench.scrape() is None


async def test_a_count_that_failed_is_taken_later_also_where_another_leads(bench: Bench) -> None:
    bench.scrape()
    bench.store.waiting, bench.store.fault = 7, Unavailable("away")
    with pytest.raises(Unavailable):
        await bench.telling.look()
    bench.now += 60
    assert bench.scrape() is None
    bench.store.fault = None
    await bench.telling.names()
    assert bench.scrape() == 7
    bench.store.waiting = 8
    await bench.telling.names()
    assert bench.scrape() is None


async def test_a_turn_that_was_over_before_the_end_leaves_nothing_untold(bench: Bench) -> None:
    bench.scrape()
    bench.store.waiting = 7
    await bench.telling.look()
    bench.now += 60
    scraped: list[float | None] = []

    def scrape() -> None:
        scraped.append(bench.scrape())

    bench.during_sleep = scrape
    await bench.telling.end()
    assert scraped[0] == 7


@pytest.mark.parametrize("fault", [Unavailable("away"), RuntimeError("a fault of ours")])
async def test_the_turn_is_given_back_whatever_the_last_count_met(
    bench: Bench, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.fault = fault
    await bench.telling.end()
    assert bench.store.resigned
    assert str(fault) in caplog.text


async def test_a_last_count_that_takes_too_long_is_left_to_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for patience in ("LAST_COUNT_S", "LAST_WORD_S"):
        monkeypatch.setattr(f"queue_operator.metrics.telling.{patience}", 0.01)
    bench.store.hangs = True
    await bench.telling.end()
    assert bench.store.resigned
    assert "it took more than 0.01 s" in caplog.text
