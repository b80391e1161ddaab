"""What the counters of jobs show, when, and until when."""

from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import Samples, key

from queue_operator.backends.figures import OTHER, Counted, Pair, Spread
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import TARGET, TERMINAL, Event, JobState
from queue_operator.metrics import scrapers
from queue_operator.metrics.job_counters import BUCKETS, OUTCOMES, JobCounters
from queue_operator.metrics.labels import MAX_NAMESPACES, MAX_PAIRS
from queue_operator.metrics.scrapers import LATELY_S, UNKNOWN, Scraper

MAIL: Pair = ("ns", "mail")
LABELS = {"namespace": "ns", "type": "mail"}
SUBMITTED = key("queueoperator_jobs_submitted_total", **LABELS)
RUNS = key("queueoperator_job_run_seconds_count", **LABELS)
BOUND = 25_000
OF_A_REPLICA = 4_000
"""What is left for the figures about each replica, and the gauges of jobs that are not by state."""


@dataclass
class Bench:
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    shows: bool = True
    now: float = 0.0

    def __post_init__(self) -> None:
        self.counters = JobCounters(lambda: self.shows, lambda: self.now)
        self.registry.register(self.counters)

    def scrape(self, whose: Scraper = UNKNOWN) -> Samples:
        token = scrapers.current.set(whose)
        try:
            return exposition.of(self.registry)
        finally:
            scrapers.current.reset(token)

    def submit(self, n: int, pair: Pair = MAIL) -> None:
        counted = Counted()
        counted.submitted[pair] = n
        self.counters.add(counted)

    def run(self, event: Event, category: str = "", n: int = 1) -> None:
        counted = Counted()
        counted.attempts[*MAIL, event, category] = n
        counts = [0] * (len(BUCKETS.run) + 1)
        counts[2] = n
        counted.runs[MAIL] = Spread(counts, n * 20_000)
        self.counters.add(counted)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_series_begins_with_0_for_whoever_scrapes_first(bench: Bench) -> None:
    bench.submit(3)
    bench.run(Event.COMPLETE)
    assert not bench.counters.is_told
    first = bench.scrape()
    assert (first[SUBMITTED], first[RUNS]) == (0, 0)
    assert not bench.counters.is_told
    second = bench.scrape()
    assert (second[SUBMITTED], second[RUNS]) == (3, 1)
    assert second[key("queueoperator_job_run_seconds_sum", **LABELS)] == 0.02
    assert bench.counters.is_told
    bench.submit(1)
    assert not bench.counters.is_told
    assert bench.scrape()[SUBMITTED] == 4
    assert bench.counters.is_told


ONE, TWO = (Scraper(address, "Prometheus", is_regular=True) for address in ("10.0.0.1", "10.0.0.2"))


def test_each_of_two_scrapers_is_shown_all(bench: Bench) -> None:
    for whose in (ONE, TWO):
        assert SUBMITTED not in bench.scrape(whose)
    bench.submit(3)
    for whose in (ONE, TWO):
        assert bench.scrape(whose)[SUBMITTED] == 0
        assert bench.counters.untold == {ONE.address, TWO.address}
    assert bench.scrape(ONE)[SUBMITTED] == 3
    assert bench.counters.untold == {TWO.address}
    assert bench.scrape(TWO)[SUBMITTED] == 3
    assert bench.counters.is_told


def test_who_comes_later_is_shown_what_is_known_from_before(bench: Bench) -> None:
    """It may be a Prometheus that was moved: a 0 would be taken for the reset of a counter."""
    bench.submit(3)
    bench.scrape(ONE)
    assert bench.scrape(TWO)[SUBMITTED] == 3


def test_who_was_away_for_long_is_waited_for_no_more(bench: Bench) -> None:
    bench.scrape(ONE)
    bench.scrape(TWO)
    bench.now += LATELY_S + 1
    bench.submit(3)
    for expected in (0, 3):
        assert bench.scrape(ONE)[SUBMITTED] == expected
    assert bench.counters.is_told


def test_who_came_to_look_takes_nothing_from_those_who_scrape(bench: Bench) -> None:
    person = Scraper("10.0.0.3", "curl")
    bench.scrape(ONE)
    bench.submit(3)
    assert bench.scrape(person)[SUBMITTED] == 0
    for expected in (0, 3):
        assert not bench.counters.is_told
        assert bench.scrape(ONE)[SUBMITTED] == expected
    assert bench.counters.is_told


def test_who_is_new_to_a_replica_that_has_nothing_to_show_has_missed_nothing(bench: Bench) -> None:
    for _ in range(2):
        bench.submit(3)
        bench.scrape(ONE)
    bench.shows = False
    bench.scrape(TWO)
    assert bench.counters.is_told
    bench.shows = True
    bench.submit(1)
    assert bench.counters.untold == {ONE.address, TWO.address}


def test_of_many_scrapers_the_last_are_known(bench: Bench) -> None:
    """Whoever can choose addresses must not fill the memory."""
    for number in range(100):
        bench.scrape(Scraper(f"10.0.1.{number}", "Prometheus", is_regular=True))
    bench.submit(3)
    assert len(bench.counters.untold) == 16


def test_a_request_tells_who_scrapes() -> None:
    environ = {"REMOTE_ADDR": "10.0.0.1", "HTTP_USER_AGENT": "Prometheus"}
    timeout = {"HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS": "10"}
    assert Scraper.of(environ | timeout) == ONE
    assert not Scraper.of(environ).is_regular


def test_buckets_are_added_up(bench: Bench) -> None:
    bench.run(Event.COMPLETE, n=2)
    bench.scrape()
    found = bench.scrape()
    by_bound = {
        bound: found[key("queueoperator_job_run_seconds_bucket", **LABELS, le=bound)]
        for bound in ("0.005", "0.01", "0.025", "0.05", "+Inf")
    }
    assert by_bound == {"0.005": 0, "0.01": 0, "0.025": 2, "0.05": 2, "+Inf": 2}


def test_whoever_does_not_lead_shows_nothing_and_begins_nothing(bench: Bench) -> None:
    bench.shows = False
    bench.submit(3)
    assert bench.scrape() == {}
    # Who may come again is known all the same.
    assert bench.counters.scraped_within(0)
    bench.shows = True
    assert bench.scrape()[SUBMITTED] == 0
    assert bench.scrape()[SUBMITTED] == 3
    bench.now += 5
    assert bench.counters.scraped_within(5)
    assert not bench.counters.scraped_within(4)


def test_what_is_named_is_there_before_it_counts(bench: Bench) -> None:
    bench.counters.keep(frozenset({MAIL}))
    assert bench.scrape()[SUBMITTED] == 0
    bench.submit(2)
    assert bench.scrape()[SUBMITTED] == 2


def test_a_name_that_is_given_back_takes_its_series_along(bench: Bench) -> None:
    bench.submit(2)
    bench.submit(1, (OTHER, OTHER))
    bench.run(Event.FAIL, "TIMEOUT")
    bench.counters.keep(frozenset({MAIL}))
    bench.scrape()
    attempt = key(
        "queueoperator_job_attempts_total", **LABELS, outcome="failed", error_class="timeout"
    )
    assert bench.scrape()[attempt] == 1
    bench.counters.keep(frozenset())
    found = bench.scrape()
    assert {dict(labels)["namespace"] for _, labels in found} == {OTHER}
    bench.counters.keep(frozenset({MAIL}))
    bench.submit(5)
    assert bench.scrape()[SUBMITTED] == 0
    assert bench.scrape()[SUBMITTED] == 5


def test_what_ends_an_attempt_has_an_outcome(bench: Bench) -> None:
    holding = (JobState.RUNNING, JobState.CANCELLING)
    ends = {
        event
        for (event, source), target in TARGET.items()
        if source in holding and target not in holding
    }
    assert set(OUTCOMES) == ends
    bench.run(Event.LOSE, "SYSTEM")
    bench.run(Event.MARK_UNKNOWN_STOPPED)
    bench.run(Event.FAIL, "SYSTEM")
    bench.scrape()
    found = bench.scrape()
    told = {
        (dict(labels)["outcome"], dict(labels)["error_class"]): n
        for (name, labels), n in found.items()
        if name == "queueoperator_job_attempts_total"
    }
    assert told == {("lost", ""): 1, ("unknown", ""): 1, ("failed", "system"): 1}
    assert found[key("queueoperator_leases_expired_total", **LABELS)] == 2


def test_what_a_later_release_calls_an_end_has_its_own_name(bench: Bench) -> None:
    counted = Counted()
    counted.attempts[*MAIL, "PARK", ""] = 1
    bench.counters.add(counted)
    bench.scrape()
    parked = key("queueoperator_job_attempts_total", **LABELS, outcome="park", error_class="")
    assert bench.scrape()[parked] == 1


def test_all_names_with_all_that_can_happen_are_within_the_bound(bench: Bench) -> None:
    names = frozenset(
        {(f"ns-{n}", f"type-{n}") for n in range(MAX_PAIRS)}
        | {(f"ns-{n}", OTHER) for n in range(MAX_NAMESPACES)}
    )
    counted = Counted()
    for pair in (*names, (OTHER, OTHER)):
        counted.submitted[pair] = 1
        counted.waits[pair] = Spread([1] * (len(BUCKETS.wait) + 1))
        counted.runs[pair] = Spread([1] * (len(BUCKETS.run) + 1))
        for state in TERMINAL:
            counted.finished[*pair, state] = 1
        for event in OUTCOMES:
            for category in ("", *ErrorCategory):
                counted.attempts[*pair, event, category] = 1
    bench.counters.keep(names)
    bench.counters.add(counted)
    gauges = (len(names) + 1) * (len(JobState) + 1)
    assert len(bench.scrape()) + gauges < BOUND - OF_A_REPLICA
