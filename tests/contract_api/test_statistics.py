"""Counts, rates and percentiles over a span of time."""

from datetime import datetime, timedelta

import pytest
from pydantic import TypeAdapter
from tests.contract_api.api import Api

from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")

duration = TypeAdapter(timedelta).validate_python


def told(counts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Without what is all zero."""
    return {name: numbers for name, numbers in counts.items() if any(numbers.values())}


NONE = {
    "pending": 0,
    "running": 0,
    "completed": 0,
    "failed": 0,
    "dead_letter": 0,
    "cancelled": 0,
}


async def one_of_each(api: Api) -> None:
    """COMPLETED, FAILED, DEAD_LETTER, RUNNING, SCHEDULED, PENDING, two DELAYED, one RETRYING."""
    await api.submit(type="a")
    await api.complete()
    await api.submit(type="a")
    await api.fail(ErrorCategory.PERMANENT)
    await api.failed_for_good(type="b", priority="HIGH")
    await api.submit(type="b", max_attempts=9, backoff={"strategy": "CONSTANT", "initial_delay": 9})
    await api.fail()
    await api.submit(type="b")
    await api.start()
    scheduled = await api.submitted(type="a")
    await api.submit(type="a", depends_on=[scheduled])
    await api.submit(type="a", delay=600)
    await api.submit(type="b", delay=600, priority="HIGH")


@proves(
    "external-api.QueueStats.rule.1",
    "external-api.QueueStats.rule.2",
    "external-api.QueueStats.rule.3",
    "external-api.QueueStats.rule.4",
)
async def test_jobs_are_counted_as_they_are(api: Api) -> None:
    await one_of_each(api)
    stats = await api.get("/stats")
    names = ("pending", "scheduled", "running", "delayed")
    assert [stats[name] for name in names] == [1, 1, 1, 3]
    await api.later(10)
    stats = await api.get("/stats")
    assert [stats[name] for name in names] == [1, 2, 1, 2]


@proves(
    "external-api.QueueStats.rule.5",
    "external-api.QueueStats.rule.6",
    "external-api.QueueStats.rule.7",
    "external-api.QueueStats.expect.2",
)
async def test_ends_are_counted_at_once(api: Api) -> None:
    await one_of_each(api)
    for _ in range(2):
        await api.submit()
        await api.complete()
        stats = await api.get("/stats")
    assert (stats["completed"], stats["failed"], stats["dead_letter"]) == (3, 1, 1)


@proves(
    "external-api.QueueStats.rule.8",
    "external-api.QueueStats.rule.9",
    "external-api.QueueStats.rule.10",
    "external-api.QueueStats.expect.1",
)
async def test_rates_are_of_the_window(api: Api) -> None:
    await one_of_each(api)
    stats = await api.get("/stats", time_range="PT2M")
    since, until = (datetime.fromisoformat(stats[name]) for name in ("since", "until"))
    assert (since.second, since.microsecond) == (0, 0)
    seconds = (until - since).total_seconds()
    assert 120 <= seconds <= 181
    counts = (("submission_rate", 9), ("completion_rate", 1), ("failure_rate", 2))
    for name, count in counts:
        assert stats[name] == pytest.approx(count / seconds)


@proves("external-api.StatsQuery.rule.2")
async def test_a_window_reaches_so_far_back(api: Api) -> None:
    await api.submit()
    await api.complete()
    assert (await api.get("/stats"))["completed"] == 1
    for wrong in ("0", "-5", "P1000Y", "soon", "NaN"):
        assert list(await api.faults("GET", "/stats", time_range=wrong)) == ["time_range"]


@proves(
    "external-api.QueueStats.rule.11",
    "external-api.LatencyStats.rule.1",
    "external-api.LatencyStats.rule.2",
    "external-api.LatencyStats.rule.3",
)
async def test_the_time_in_the_queue(api: Api) -> None:
    empty = (await api.get("/stats"))["queue_latency"]
    assert empty == {"p50": None, "p90": None, "p99": None, "max": None}
    for wait_s in (1, 10, 100):
        await api.submit(type=f"w{wait_s}")
    for age_s, wait_s in ((1, 1), (9, 10), (90, 100)):
        await api.store.age(age_s)
        await api.claim(types=[f"w{wait_s}"])
    found = (await api.get("/stats"))["queue_latency"]
    for name, wait_s in (("p50", 10), ("p90", 100), ("p99", 100)):
        assert duration(found[name]).total_seconds() == pytest.approx(wait_s, rel=0.1)


@proves("external-api.QueueStats.rule.12", "external-api.LatencyStats.rule.4")
async def test_the_time_of_execution(api: Api) -> None:
    for run_s in (2, 20):
        await api.submit()
        run = await api.start()
        await api.store.age(run_s)
        await api.settle(run, Event.COMPLETE, result=b"1")
    found = (await api.get("/stats"))["execution_time"]
    assert 20 <= duration(found["max"]).total_seconds() < 24
    assert duration(found["p50"]).total_seconds() == pytest.approx(2, rel=0.2)


@proves(
    "external-api.StatsQuery.rule.1",
    "external-api.StatsQuery.expect.1",
    "external-api.StatsQuery.expect.2",
    "external-api.StatsQuery.expect.3",
)
async def test_breakdowns_are_asked_for(api: Api) -> None:
    await one_of_each(api)
    names = {"TYPE": "by_type", "PRIORITY": "by_priority", "STATE": "by_state"}
    plain = await api.get("/stats")
    assert not set(names.values()) & set(plain)
    for asked, name in names.items():
        stats = await api.get("/stats", breakdown_by=asked)
        assert set(names.values()) & set(stats) == {name}
    everything = await api.get("/stats", breakdown_by=list(names))
    assert set(names.values()) <= set(everything)
    [field] = await api.faults("GET", "/stats", breakdown_by="COLOUR")
    assert field.startswith("breakdown_by")


@proves(
    "external-api.QueueStats.rule.13",
    "external-api.Counts.rule.1",
    "external-api.Counts.rule.2",
    "external-api.Counts.rule.3",
    "external-api.Counts.rule.4",
)
async def test_the_breakdown_by_type(api: Api) -> None:
    await one_of_each(api)
    by_type = (await api.get("/stats", breakdown_by="TYPE"))["by_type"]
    assert by_type == {
        "a": {**NONE, "pending": 3, "completed": 1, "failed": 1},
        "b": {**NONE, "pending": 2, "running": 1, "dead_letter": 1},
    }


@proves("external-api.QueueStats.rule.14", "external-api.QueueStats.rule.15")
async def test_the_other_breakdowns(api: Api) -> None:
    await one_of_each(api)
    stats = await api.get("/stats", breakdown_by=["PRIORITY", "STATE"])
    by_priority = {
        name: counts for name, counts in stats["by_priority"].items() if any(counts.values())
    }
    assert by_priority == {
        "HIGH": {**NONE, "pending": 1, "dead_letter": 1},
        "NORMAL": {**NONE, "pending": 4, "running": 1, "completed": 1, "failed": 1},
    }
    assert told(stats["by_state"]) == {
        "PENDING": {**NONE, "pending": 1},
        "SCHEDULED": {**NONE, "pending": 1},
        "DELAYED": {**NONE, "pending": 2},
        "RETRYING": {**NONE, "pending": 1},
        "RUNNING": {**NONE, "running": 1},
        "COMPLETED": {**NONE, "completed": 1},
        "FAILED": {**NONE, "failed": 1},
        "DEAD_LETTER": {**NONE, "dead_letter": 1},
    }
