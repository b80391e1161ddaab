"""What the benchmark makes of its figures: ratios, ledgers, the page that shows them."""

import pytest

from bench.comparison import add_ratios, reached
from bench.contenders import OURS
from bench.meter import Reading
from bench.programs.ledger import Ledger
from bench.programs.tag_sets import SETS, demands, of_job
from bench.render import BEGIN, END, block, replaced
from bench.result import Result, Setting
from bench.runner import Run

SERVER: dict[str, Setting] = {
    "postgres": "18.6",
    "cpus": 2,
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
}
NOTHING = Reading(0.0, 0.0, 0, 0, 0, 0.0, 0.0)


def result(scenario: str, system: str, **metrics: float) -> Result:
    return Result(scenario, system, {**SERVER, "batch": 500}, metrics)


def test_a_ratio_is_taken_to_the_best_a_peer_can_do() -> None:
    ours = result("burn_down", OURS, jobs_per_s=30.0)
    others = [
        result("burn_down", "river", jobs_per_s=20.0),
        result("burn_down", "river (default)", jobs_per_s=1.0),
        result("submit", "postgres copy", jobs_per_s=60.0),
    ]
    add_ratios([ours, *others])
    assert ours.metrics == {"jobs_per_s": 30.0, "ratio_to_river": 1.5}


@pytest.mark.parametrize(
    ("metric", "value", "passed"),
    [
        ("share_of_unpinned", 0.9, True),
        ("share_of_unpinned", 0.89, False),
        ("jobs_per_s", 1.0, None),
    ],
)
def test_lines_to_reach(metric: str, value: float, passed: bool | None) -> None:
    assert reached(result("continuous_pinned", OURS, **{metric: value}), metric) is passed


def test_peers_have_no_line_to_reach() -> None:
    assert reached(result("stats", "river", stats_max_ms=1.0), "stats_max_ms") is None


def test_the_ledger_counts_what_happened_twice() -> None:
    ledger = Ledger()
    ledger.reserve(3)
    claimed = [("job-0", "a"), ("job-1", "b"), ("job-2", "c")]
    ledger.record_claimed(claimed)
    ledger.record_completed(claimed)
    assert ledger.duplicates == 0
    ledger.record_claimed([("job-1", "d")])
    ledger.record_completed([("job-2", "c"), ("job-2", "c")])
    assert ledger.duplicates == 3


def test_an_attempt_is_handed_out_once() -> None:
    ledger = Ledger()
    ledger.reserve(2)
    ledger.record_attempts([("job-0", "a", 1), ("job-1", "b", 1)])
    ledger.record_attempts([("job-0", "c", 2), ("job-0", "d", 3)])
    assert (ledger.claimed, ledger.duplicates) == (4, 0)
    ledger.record_attempts([("job-0", "e", 2)])
    assert ledger.duplicates == 1
    ledger.record_attempts([("job-1", "f", 1)])
    assert ledger.duplicates == 2


def test_a_rate_between_two_moments() -> None:
    ticks = [(1.0, 10), (2.0, 30), (3.0, 60)]
    ledger = {"submitted": 100, "lost": 0, "duplicates": 0}
    run = Run(4.0, 100, 100, ticks, ledger, NOTHING, NOTHING, {})
    assert run.rate(0.0, 1.0) == 10.0
    assert run.rate(3.0, 4.0) == 40.0
    assert run.rate(1.1, 2.9) == 25.0


def test_costs_are_per_job() -> None:
    after = Reading(2.0, 4.0, 1000, 500, 7, 60.0, 61.0)
    ledger = {"submitted": 100, "lost": 0, "duplicates": 0}
    metrics = Run(4.0, 100, 50, [], ledger, NOTHING, after, {}).metrics(50)
    assert metrics["wal_bytes_per_job"] == 20.0
    assert metrics["own_cpu_s_per_1000"] == 40.0
    assert metrics["server_cpu_s_per_1000"] == 80.0
    assert metrics["table_bytes_per_job"] == 5.0


def test_every_demand_matches_some_tag_set() -> None:
    assert len(set(SETS)) == len(SETS) == 200
    assert {of_job(n) for n in range(len(SETS))} == set(SETS)
    for demand in demands(12):
        for _ in range(5):
            wanted = next(demand)
            assert any(wanted <= tags for tags in SETS)
    assert len({next(demand) for demand in demands(12)}) == 10


def test_the_page_shows_a_run_and_can_show_the_next() -> None:
    results = [
        result("burn_down", OURS, jobs_per_s=30_000.0, wal_bytes_per_job=900.0),
        result("burn_down", "river", jobs_per_s=20_000.0, wal_bytes_per_job=2_700.0),
        result("stats", OURS, stats_max_ms=612.0),
    ]
    page = replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", block(results))
    assert "| burn_down | 30,000 | river | 20,000 | 1.50 |" in page
    assert "| stats | `stats_max_ms` | 612.00 | below 500 | **no** |" in page
    assert "old" not in page
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert replaced(page, block(results)) == page


def test_an_invalid_run_is_shown_as_one() -> None:
    assert "not valid" in block([result("burn_down", OURS, jobs_per_s=1.0, valid=0)])


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        replaced("nothing here", "figures")
