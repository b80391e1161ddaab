"""The benchmark measures what it says, on a real server and with little of everything."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import report
from bench.board import Board
from bench.cells import CELLS, GROUPS, Measuring, Scale
from bench.contenders import COPY, EMPTY, OURS, Contender, ours, wide_row
from bench.hours import CALLS, PINNED, UNPINNED
from bench.result import Result, read, write
from bench.runner import ProgramFailed, System, run_once
from bench.server import Server
from bench.table import show

LITTLE = Scale(
    jobs=600,
    submit_batch=200,
    depth=400,
    seconds=0.6,
    repeats=1,
    lane_jobs=2_000,
    lane_seconds=0.5,
    stats_jobs=10_000,
    whole_jobs=600,
    pickup_rate=200,
    pickup_seconds=1.0,
    sessions=20,
    idle_seconds=1.0,
    scraped_jobs=5_000,
    scraped_sessions=10,
    webhook_jobs=100,
    rest_singles=300,
    search_jobs=5_000,
    status_seconds=0.5,
    rest_calls=2,
    # So long that a heartbeat falls into what is measured in the end.
    hour_seconds=4.0,
    hour_delay_s=0.2,
    hour_rate=100,
    hour_held=50,
    burn_seconds=0.5,
    names=600,
    names_waiting=200,
    names_round=100,
    names_seconds=0.5,
    history_jobs=10_000,
    batch=100,
    tries_settings=False,
)
LEDGER = {"submitted": 600, "stored": 600, "completed": 600, "duplicates": 0, "lost": 0}


@pytest.fixture(scope="module")
def server(postgres_admin_dsn: str) -> Server:
    return Server.at(postgres_admin_dsn, own=False)


@pytest.fixture
def measuring(server: Server) -> Iterator[Measuring]:
    with Board(1, Console(file=io.StringIO())) as board:
        yield Measuring(server, LITTLE, ours(LITTLE.batch), [], board)


def measured(measuring: Measuring, *cells: str) -> dict[tuple[str, str], Result]:
    for cell in cells:
        CELLS[cell](measuring)
    return {(result.scenario, result.system): result for result in measuring.results}


def program(name: str, *lines: str) -> System:
    """A program that says all it has to say at once, and waits for its end."""
    source = "import sys; print(*sys.argv[1:], sep='\\n', flush=True); sys.stdin.read()"
    return System(name, [sys.executable, "-c", source, *lines])


def answers(*, elapsed: float = 1.0, **ledger: int) -> list[str]:
    done = f'{{"event": "done", "elapsed": {elapsed}, "submitted": 600, "completed": 600}}'
    said = ", ".join(f'"{key}": {value}' for key, value in (LEDGER | ledger).items())
    return ['{"event": "ready"}', done, f'{{"event": "ledger", {said}}}']


def peer(name: str, *lines: str) -> Contender:
    return Contender(name=name, system=program(name, *lines), trials={"burn_down": [{}]})


def test_every_scenario_of_the_group_gives_figures(measuring: Measuring, tmp_path: Path) -> None:
    results = measured(measuring, *GROUPS["storage"])
    assert set(results) == {
        ("submit", COPY),
        *((scenario, OURS) for scenario in GROUPS["storage"]),
    }
    assert (measuring.problems, measuring.wrong_ledgers) == ([], [])
    for scenario in ("submit", "burn_down", "continuous", "continuous_pinned", "many_lanes"):
        metrics = results[scenario, OURS].metrics
        assert metrics["ledger_ok"] == 1
        for name in ("jobs_per_s", "wal_bytes_per_job", "table_bytes_per_job", "rss_mb"):
            assert metrics[name] > 0, (scenario, name)
        assert metrics["own_cpu_s_per_1000"] + metrics["server_cpu_s_per_1000"] > 0
    assert results["burn_down", OURS].metrics["completed"] == LITTLE.jobs
    assert results["continuous_pinned", OURS].metrics["share_of_unpinned"] > 0
    assert results["many_lanes", OURS].metrics["claim_p99_ms"] > 0
    assert results["stats", OURS].metrics["stored"] == LITTLE.stats_jobs
    assert results["stats", OURS].metrics["get_job_p50_ms"] > 0
    shown = io.StringIO()
    show(measuring.results, Console(file=shown, width=160))
    assert "wanted at least 0.9" in shown.getvalue()
    write(tmp_path / "run.json", measuring.results)
    assert read(tmp_path / "run.json") == measuring.results


def test_the_whole_product_gives_figures(measuring: Measuring) -> None:
    results = measured(measuring, *GROUPS["whole"])
    assert set(results) == {(scenario, OURS) for scenario in GROUPS["whole"]}
    assert measuring.wrong_ledgers == []
    whole = results["end_to_end", OURS].metrics
    assert whole["completed"] == LITTLE.whole_jobs
    assert min(whole["operator_cpu_s_per_1000"], whole["worker_cpu_s_per_1000"]) > 0
    pickup = results["pickup", OURS].metrics
    assert pickup["completed"] == pickup["submitted"] > 100
    assert 0 < pickup["pickup_p50_ms"] <= pickup["pickup_p99_ms"] <= pickup["pickup_max_ms"]
    idle = results["idle_sessions", OURS].metrics
    assert idle["idle_statements_per_s"] > 0
    assert idle["idle_rss_mb"] > 0
    scrape = results["scrape", OURS].metrics
    assert 0 < scrape["scrape_p50_ms"] <= scrape["scrape_max_ms"]
    assert scrape["scrape_samples"] > 200
    webhooks = results["webhooks", OURS].metrics
    assert min(webhooks["told_of_plain"], webhooks["deliveries_per_s"]) > 0
    assert webhooks["sender_rss_mb"] > 0


def test_the_rest_api_gives_figures(measuring: Measuring) -> None:
    # The others do the same to more jobs, or with more of them in a request.
    results = measured(measuring, "rest_submit", "rest_search")
    assert set(results) == {("rest_submit", OURS), ("rest_submit", EMPTY), ("rest_search", OURS)}
    assert measuring.wrong_ledgers == []
    submit = results["rest_submit", OURS].metrics
    assert submit["stored"] >= submit["jobs"] >= LITTLE.rest_singles
    assert min(submit["jobs_per_s"], submit["operator_cpu_s_per_1000"]) > 0
    assert min(submit["operator_rss_before_mb"], submit["operator_rss_half_mb"]) > 0
    reads = results["rest_search", OURS].metrics
    assert reads["stored"] == LITTLE.search_jobs
    assert 0 < reads["status_p50_ms"] <= reads["status_p99_ms"]
    assert 0 < reads["search_p50_ms"] <= reads["search_worst_p99_ms"]
    assert 0 < reads["stats_hour_p50_ms"] <= reads["rest_stats_max_ms"]


def test_an_hour_with_old_rows_kept_gives_figures(measuring: Measuring) -> None:
    results = measured(measuring, "pinned_hour")
    assert set(results) == {(PINNED, OURS), (UNPINNED, OURS)}
    assert measuring.wrong_ledgers == []
    pinned = results[PINNED, OURS].metrics
    assert pinned["completed"] == pinned["submitted"] > pinned["burnt_jobs"] > 0
    assert (pinned["unavailable"], pinned["leases_lost"]) == (0, 0)
    assert pinned["claim_p99_of_unpinned"] > 0
    for name in CALLS:
        assert 0 < pinned[f"{name}_p50_ms"] <= pinned[f"{name}_max_ms"], name
    assert min(pinned["claim_first_p99_ms"], pinned["claim_last_p99_ms"]) > 0
    # All that was burnt is there still.
    assert pinned["dead_rows"] >= pinned["burnt_jobs"]


def test_many_names_give_figures(measuring: Measuring) -> None:
    names = measured(measuring, "many_names")["many_names", OURS].metrics
    assert measuring.wrong_ledgers == []
    assert names["lanes_used"] >= LITTLE.names
    assert min(names["of_ordinary"], names["single_of_ordinary"], names["first_claim_ms"]) > 0
    assert 0 < names["claim_p50_ms"] <= names["claim_p99_ms"]
    assert min(names["waiting_rss_mb"], names["deletes_per_s"]) > 0


def test_a_long_history_gives_figures(measuring: Measuring) -> None:
    history = measured(measuring, "long_history")["long_history", OURS].metrics
    assert measuring.wrong_ledgers == []
    assert (history["cancel_rows"], history["delete_rows"], history["cleanup_rows"]) == (
        10,
        10,
        1000,
    )
    assert history["delete_lane_rows"] == LITTLE.history_jobs / 200
    # A tenth of the log is older, and so is the sample's.
    assert history["prune_rows"] > LITTLE.history_jobs // 100
    assert history["prune_nothing_rows"] == 0
    for name in ("cancel", "refuse", "delete", "delete_lane", "cleanup", "prune", "prune_nothing"):
        assert min(history[f"{name}_max_ms"], history[f"{name}_pages"]) > 0, name
    assert history["stored"] < history["submitted"]


def test_the_designs_are_measured_beside_each_other(measuring: Measuring) -> None:
    results = measured(measuring, "designs")
    parts = ("submit", "burn_down", "continuous", "continuous_pinned")
    both = (OURS, wide_row().name)
    assert set(results) == {(f"designs_{part}", name) for part in parts for name in both}
    assert measuring.wrong_ledgers == []
    for name in both:
        assert results["designs_burn_down", name].metrics["completed"] == LITTLE.jobs
        assert results["designs_continuous_pinned", name].metrics["share_of_unpinned"] > 0


@pytest.mark.parametrize("wrong", [{"lost": 1}, {"duplicates": 1}])
def test_a_lost_or_doubled_job_is_never_overlooked(
    server: Server, wrong: dict[str, int], tmp_path: Path
) -> None:
    product, peers = peer(OURS, *answers()), [peer("other", *answers(**wrong))]
    with Board(1, Console(file=io.StringIO())) as board:
        careless = Measuring(server, LITTLE, product, peers, board)
        results = measured(careless, "burn_down")
    assert results["burn_down", "other"].metrics["ledger_ok"] == 0
    assert results["burn_down", OURS].metrics["ledger_ok"] == 1
    with pytest.raises(SystemExit) as ended:
        report(careless, tmp_path / "run.json")
    assert ended.value.code == 1
    assert {one.metrics["valid"] for one in read(tmp_path / "run.json")} == {0}


@pytest.mark.parametrize(("elapsed", "problems"), [(1.0, 1), (0.01, 0)])
def test_a_slow_river_betrays_a_busy_machine(server: Server, elapsed: float, problems: int) -> None:
    product = peer(OURS, *answers())
    rivers = [peer("river", *answers(elapsed=elapsed))]
    with Board(1, Console(file=io.StringIO())) as board:
        one = Measuring(server, LITTLE, product, rivers, board)
        measured(one, "burn_down")
    assert len(one.problems) == problems


def test_a_program_that_dies_is_quoted(server: Server) -> None:
    dies = System("dies", [sys.executable, "-c", "raise SystemExit('no such thing')"])
    with pytest.raises(ProgramFailed, match=r"dies ended.*\n.*no such thing"):
        run_once(server, dies, {"mode": "submit"})
