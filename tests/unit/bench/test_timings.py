"""How calls are timed, and which of them count for what."""

import asyncio

import pytest

from bench.hours import CALLS, HEADINGS, PINNED, UNPINNED, rows
from bench.programs.chores import PulseWatch
from bench.programs.many_names import own_tags
from bench.programs.timings import Timings, figures
from bench.programs.traffic import Pace, fails, is_delayed
from bench.result import Result
from queue_operator.domain.errors import Unavailable


async def answer() -> int:
    return 7


async def silence() -> int:
    raise Unavailable("not now")


async def wrong() -> int:
    raise ValueError("wrong")


async def test_what_was_unavailable_is_counted_and_timed() -> None:
    timings = Timings()
    assert await timings.of("claim", answer()) == 7
    assert await timings.of("claim", silence()) is None
    assert timings.unavailable == {"claim": 1}
    assert len(timings.all("claim")) == 2


async def test_other_errors_are_not_kept_back() -> None:
    timings = Timings()
    with pytest.raises(ValueError, match="wrong"):
        await timings.of("claim", wrong())
    assert not timings.unavailable


def test_a_call_belongs_to_the_window_in_which_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    timings = Timings()
    for at, taken_s in ((1.0, 0.001), (2.0, 0.002), (3.0, 0.003)):
        monkeypatch.setattr("bench.programs.timings.time.perf_counter", lambda at=at: at)
        timings.note("sweep", taken_s)
    assert timings.between("sweep", 1.0, 3.0) == [1.0, 2.0]
    assert timings.between("sweep", 3.0, 9.0) == [3.0]
    assert timings.names == ["sweep"]


def test_windows_in_which_all_stood_still_are_not_typical(monkeypatch: pytest.MonkeyPatch) -> None:
    timings = Timings()
    for second, taken_s in enumerate([0.004, 4.0, 0.006, 0.005]):
        monkeypatch.setattr("bench.programs.timings.time.perf_counter", lambda at=second: float(at))
        timings.note("sweep", taken_s)
    assert timings.typical("sweep", 0.0, 4.0, 1.0) == 5.5
    # Of two windows.
    assert timings.typical("sweep", 2.0, 4.0, 1.0) == 5.5
    assert timings.typical("sweep", 4.0, 8.0, 1.0) == 0.0


def test_figures_of_many_of_one_and_of_nothing() -> None:
    many = figures("claim", [float(n) for n in range(1, 102)])
    assert many == {"claim_p50_ms": 51.0, "claim_p99_ms": 100.0, "claim_max_ms": 101.0}
    assert figures("claim", [5.0]) == {
        "claim_p50_ms": 5.0,
        "claim_p99_ms": 5.0,
        "claim_max_ms": 5.0,
    }
    assert figures("claim", []) == {}


async def test_a_beat_lasts_from_the_end_of_a_sleep_to_the_next() -> None:
    timings = Timings()
    watch = PulseWatch(timings)
    await watch(0.0)
    assert timings.all("pulse") == []
    await watch(0.0)
    assert len(timings.all("pulse")) == 1


async def test_a_sleep_in_a_hurry_is_no_beat() -> None:
    """It begins before the one that it replaces is over."""
    timings = Timings()
    watch = PulseWatch(timings)
    await watch(0.0)
    replaced = asyncio.create_task(watch(3_600.0))
    await asyncio.sleep(0)
    assert len(timings.all("pulse")) == 1
    await watch(0.0)
    replaced.cancel()
    await asyncio.gather(replaced, return_exceptions=True)
    assert len(timings.all("pulse")) == 1
    await watch(0.0)
    assert len(timings.all("pulse")) == 2


def test_some_jobs_fail_and_some_are_delayed() -> None:
    numbers = range(1_000)
    assert sum(map(fails, numbers)) == 20
    assert sum(map(is_delayed, numbers)) == 50
    assert Pace(compressed=0.1, delay_s=30.0).delays_up_to_s == 3.0


def test_no_two_jobs_have_the_same_tags() -> None:
    assert len({own_tags(n) for n in range(1_000)}) == 1_000
    assert len({tag for n in range(1_000) for tag in own_tags(n) if tag.startswith("pool")}) == 10


def test_the_calls_of_both_hours_stand_side_by_side() -> None:
    pinned = Result(PINNED, "queue-operator", {}, {"claim_p99_ms": 12.0, "claim_first_p99_ms": 9.0})
    free = Result(UNPINNED, "queue-operator", {}, {"claim_p50_ms": 4.0, "claim_p99_ms": 8.0})
    found = rows([free, pinned])
    assert found[0] == ("claim of 20", "4.0", "8.0", "", "12.0", "", "9.0", "", "")
    assert {len(row) for row in found} == {len(HEADINGS)}
    assert len(found) == len(CALLS)
    assert rows([pinned]) == []
