"""Statistics over time and how long the oldest have waited, for stores that tell."""

from itertools import pairwise
from typing import Any

import pytest

from queue_operator.backends.protocol import Statistics, StatsWindow
from queue_operator.backends.watching import SERIES_POINTS, SeriesWindow, StatsSeries, Watching
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.driving import a_job
from queue_operator.testing.store import TTL_S, Contract

_COUNTED = ("submitted", "completed", "failed", "dead_letter", "cancelled", "attempts_failed")


async def _series(backend: Contract, **fields: Any) -> StatsSeries:
    assert isinstance(backend, Watching)
    return await backend.stats_series(SeriesWindow(**fields))


async def _work(backend: Contract) -> None:
    """Six jobs, of which two complete, one dies and one is stopped."""
    await backend.enqueue_jobs([a_job(type="mail", max_attempts=1) for _ in range(6)])
    demand = Demand(assignee_id="w", limit=4)
    claimed = await backend.claim([demand], lease_ttl_s=TTL_S)
    events = (Event.COMPLETE, Event.COMPLETE, Event.FAIL, Event.STOP)
    await backend.settle(
        [
            Outcome(one.job_id, event, token=one.token, error=ErrorInfo("x"))
            if event is Event.FAIL
            else Outcome(one.job_id, event, token=one.token)
            for one, event in zip(claimed, events, strict=True)
        ]
    )


@pytest.mark.parametrize("rolled", [False, True], ids=["as-it-happened", "rolled-up"])
@pytest.mark.parametrize("range_s", [300.0, 3600.0, 86_400.0, 30 * 86_400.0, 390 * 86_400.0])
async def test_a_series_adds_up_to_the_window(
    backend: Contract, rolled: bool, range_s: float
) -> None:
    await _work(backend)
    assert isinstance(backend, Statistics)
    if rolled:
        while await backend.roll_up():
            pass
    series = await _series(backend, time_range_s=range_s)
    window = await backend.window_stats(StatsWindow(time_range_s=range_s))
    summed = {name: sum(getattr(one, name) for one in series.points) for name in _COUNTED}
    assert summed == {name: getattr(window, name) for name in _COUNTED}
    assert (window.submitted, window.completed, window.dead_letter) == (6, 2, 1)
    last = max(one.queue_latency.max_us or 0 for one in series.points)
    assert last == window.queue_latency.max_us
    assert any(one.execution_time.p50_us is not None for one in series.points)


@pytest.mark.parametrize("range_s", [60.0, 7000.0, 2 * 86_400.0, 20 * 86_400.0, 390 * 86_400.0])
async def test_points_are_equally_far_apart_and_few(backend: Contract, range_s: float) -> None:
    series = await _series(backend, namespace="nobody", time_range_s=range_s)
    begins = [one.begins_at for one in series.points]
    apart = {(after - before).total_seconds() for before, after in pairwise(begins)}
    assert apart <= {float(series.step_s)}
    assert 1 < len(begins) <= SERIES_POINTS + 1
    assert begins[-1] <= series.until
    assert (series.until - begins[-1]).total_seconds() < series.step_s
    assert (series.until - begins[0]).total_seconds() >= range_s - series.step_s
    assert all(one.submitted == 0 and one.queue_latency.max_us is None for one in series.points)


async def test_the_oldest_that_could_run_is_told_by_type(backend: Contract) -> None:
    assert isinstance(backend, Watching)
    assert await backend.oldest_due(namespace="nobody") == {}
    await backend.enqueue_jobs(
        [
            a_job(type="mail"),
            a_job(type="report", delay_s=3600.0),
            a_job(type="other", namespace="elsewhere"),
        ]
    )
    found = await backend.oldest_due()
    assert set(found) == {"mail"}
    assert 0.0 <= found["mail"] < 600.0
    await backend.claim([Demand(assignee_id="w", limit=9)], lease_ttl_s=TTL_S)
    assert await backend.oldest_due() == {}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"time_range_s": 0.0}, "time_range_s"),
        ({"time_range_s": 1e9}, "time_range_s"),
        ({"time_range_s": "PT1H"}, "time_range_s"),
        ({"namespace": ""}, "namespace"),
    ],
)
async def test_a_series_that_is_none_is_refused(
    backend: Contract, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await _series(backend, **fields)
    assert refused.value.field == field


async def test_what_is_no_series_is_refused(backend: Contract) -> None:
    assert isinstance(backend, Watching)
    wrong: Any = 7
    with pytest.raises(InvalidArgument) as refused:
        await backend.stats_series(wrong)
    assert refused.value.field == "window"
    with pytest.raises(InvalidArgument):
        await backend.oldest_due(namespace="")
