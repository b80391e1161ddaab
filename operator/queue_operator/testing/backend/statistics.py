"""Counts, rates and percentiles over a span of time, for stores that keep them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import (
    MAX_TIME_RANGE_S,
    Breakdown,
    Counts,
    EventLog,
    Statistics,
    StatsWindow,
    WindowStats,
)
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.histogram import bucket_of, value_of
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.domain.views import Phase
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job
from queue_operator.testing.store import TTL_S, Contract, Store

_ALL: Final = frozenset(Breakdown)
_BROKEN: Final = ErrorInfo("broken", ErrorCategory.PERMANENT)
_LATE: Final = ErrorInfo("late")


async def _stats(backend: Contract, **fields: Any) -> WindowStats:
    assert isinstance(backend, Statistics)
    return await backend.window_stats(StatsWindow(**{"breakdown_by": _ALL, **fields}))


async def _roll_up(backend: Contract) -> None:
    assert isinstance(backend, Statistics)
    while await backend.roll_up(limit=3):
        pass


async def _claim(backend: Contract, limit: int, *types: str) -> list[Held]:
    demand = Demand(assignee_id="w", limit=limit, types=frozenset(types))
    claimed = await backend.claim([demand], lease_ttl_s=TTL_S)
    return [Held(one.job_id, one.token, one.namespace) for one in claimed]


async def _end(
    backend: Contract, held: Sequence[Held], event: Event, error: ErrorInfo | None = None
) -> None:
    await backend.settle([Outcome(h.job_id, event, token=h.token, error=error) for h in held])


async def _a_day(backend: Contract) -> None:
    """Twelve jobs of two types and priorities, one of each fate."""
    await backend.enqueue_jobs([a_job(type="mail", max_attempts=2) for _ in range(6)])
    mails = await _claim(backend, 6)
    await _end(backend, mails[:2], Event.COMPLETE)
    await _end(backend, mails[2:3], Event.FAIL, _BROKEN)
    await _end(backend, mails[3:4], Event.FAIL, _LATE)
    await _end(backend, mails[4:5], Event.STOP)
    parent = a_job(type="report", priority=Priority.HIGH)
    await backend.enqueue_jobs(
        [
            parent,
            a_job(type="report", priority=Priority.HIGH, depends_on=(parent.id,)),
            a_job(type="report", priority=Priority.HIGH, delay_s=3600.0),
            a_job(type="report", tags=frozenset({"eu"})),
            a_job(type="report"),
            a_job(type="mail", namespace="other"),
        ]
    )


async def test_an_empty_namespace_has_nothing(backend: Contract) -> None:
    stats = await _stats(backend, namespace="nobody")
    assert (stats.pending, stats.scheduled, stats.running, stats.delayed) == (0, 0, 0, 0)
    assert (stats.submitted, stats.completed, stats.failed) == (0, 0, 0)
    assert stats.queue_latency.p50_us is stats.execution_time.max_us is None
    assert stats.by_type == stats.by_priority == {}
    assert stats.by_phase == dict.fromkeys(Phase, Counts())


@proves(
    "external-api.QueueStats.rule.1",
    "external-api.QueueStats.rule.2",
    "external-api.QueueStats.rule.3",
    "external-api.QueueStats.rule.4",
    "external-api.QueueStats.rule.5",
)
@pytest.mark.parametrize("rolled", [False, True], ids=["as-it-happened", "rolled-up"])
async def test_jobs_of_now_and_what_happened(backend: Contract, rolled: bool) -> None:
    await _a_day(backend)
    if rolled:
        await _roll_up(backend)
    stats = await _stats(backend)
    # A failed mail is due again at once.
    assert (stats.pending, stats.scheduled, stats.running, stats.delayed) == (1, 4, 1, 1)
    assert (stats.submitted, stats.completed, stats.cancelled) == (11, 2, 1)
    assert (stats.failed, stats.dead_letter, stats.attempts_failed) == (1, 0, 2)
    assert stats.by_type == {
        "mail": Counts(pending=1, running=1, completed=2, failed=1, cancelled=1),
        "report": Counts(pending=5),
    }
    assert stats.by_priority == {
        Priority.NORMAL: Counts(pending=3, running=1, completed=2, failed=1, cancelled=1),
        Priority.HIGH: Counts(pending=3),
    }
    assert stats.by_phase == {
        Phase.PENDING: Counts(pending=1),
        Phase.DELAYED: Counts(pending=1),
        Phase.SCHEDULED: Counts(pending=3),
        Phase.RUNNING: Counts(running=1),
        Phase.RETRYING: Counts(pending=1),
        Phase.COMPLETED: Counts(completed=2),
        Phase.FAILED: Counts(failed=1),
        Phase.DEAD_LETTER: Counts(),
        Phase.CANCELLED: Counts(cancelled=1),
    }


@proves(
    "external-api.StatsQuery.expect.1",
    "external-api.StatsQuery.expect.2",
    "external-api.StatsQuery.expect.3",
)
async def test_only_what_is_asked_for_is_broken_down(backend: Contract) -> None:
    await _a_day(backend)
    for one in Breakdown:
        stats = await _stats(backend, breakdown_by=frozenset({one}))
        given = bool(stats.by_type), bool(stats.by_priority), bool(stats.by_phase)
        assert given == tuple(one is each for each in Breakdown)


@proves("external-api.QueueStats.rule.6", "external-api.QueueStats.rule.7")
async def test_a_job_whose_attempts_are_used_up_is_a_dead_letter(backend: Contract) -> None:
    await backend.enqueue_job(a_job(type="t", max_attempts=2))
    for _ in range(2):
        await _end(backend, await _claim(backend, 1), Event.FAIL, _LATE)
    stats = await _stats(backend)
    assert (stats.dead_letter, stats.failed, stats.attempts_failed) == (1, 0, 2)
    await backend.enqueue_job(a_job(type="t", max_attempts=2))
    await _end(backend, await _claim(backend, 1), Event.FAIL, _BROKEN)
    stats = await _stats(backend)
    assert (stats.dead_letter, stats.failed, stats.attempts_failed) == (1, 1, 3)


@proves(
    "external-api.Counts.rule.1",
    "external-api.Counts.rule.2",
    "external-api.Counts.rule.3",
    "external-api.Counts.rule.4",
)
async def test_a_breakdown_counts_all_that_waits_and_each_end_once(backend: Contract) -> None:
    await _a_day(backend)
    await backend.enqueue_job(a_job(type="mail", max_attempts=1))
    await backend.enqueue_job(a_job(type="mail", max_attempts=2, delay_s=60.0))
    held = await _claim(backend, 3, "mail")
    await _end(backend, held, Event.FAIL, _LATE)
    stats = await _stats(backend)
    assert stats.by_type["mail"] == Counts(
        pending=1, running=1, completed=2, failed=1, dead_letter=2, cancelled=1
    )
    assert (stats.failed, stats.dead_letter, stats.cancelled) == (1, 2, 1)
    assert stats.by_phase[Phase.DEAD_LETTER] == Counts(dead_letter=2)
    assert stats.by_type["report"] == Counts(pending=5)


async def test_what_waits_for_a_time_is_delayed_until_it_is_over(
    backend: Contract, store: Store
) -> None:
    await backend.enqueue_jobs([a_job(delay_s=60.0) for _ in range(2)])
    before = await _stats(backend)
    await store.age(61.0)
    after = await _stats(backend)
    assert (before.delayed, before.scheduled) == (2, 0)
    assert (after.delayed, after.scheduled) == (0, 2)


@proves("external-api.QueueStats.expect.1")
async def test_the_window_begins_at_a_full_minute(backend: Contract) -> None:
    for range_s in (0.5, 60.0, 3600.0, 86_400.0):
        stats = await _stats(backend, time_range_s=range_s)
        assert (stats.since.second, stats.since.microsecond) == (0, 0)
        longer_s = (stats.until - stats.since).total_seconds() - range_s
        assert 0 <= longer_s < 60


async def test_a_long_window_begins_at_a_full_hour_or_day(backend: Contract) -> None:
    week = await _stats(backend, time_range_s=7 * 86_400.0)
    year = await _stats(backend, time_range_s=365 * 86_400.0)
    assert (week.since.minute, week.since.second) == (0, 0)
    assert (year.since.hour, year.since.minute) == (0, 0)
    assert timedelta(days=7) <= week.until - week.since < timedelta(days=7, hours=1)
    assert timedelta(days=365) <= year.until - year.since < timedelta(days=366)


async def test_what_lies_before_the_window_does_not_count(backend: Contract, store: Store) -> None:
    await backend.enqueue_jobs([a_job() for _ in range(3)])
    await store.age(5 * 60.0)
    await backend.enqueue_jobs([a_job() for _ in range(2)])
    for _ in ("as it happened", "rolled up"):
        assert (await _stats(backend, time_range_s=60.0)).submitted == 2
        assert (await _stats(backend, time_range_s=600.0)).submitted == 5
        await _roll_up(backend)


async def test_long_windows_are_made_of_longer_spans(backend: Contract, store: Store) -> None:
    for count, age_s in ((1, 3 * 86_400.0), (2, 2 * 3600.0), (4, 600.0)):
        await backend.enqueue_jobs([a_job() for _ in range(count)])
        await store.age(age_s)
    await backend.enqueue_jobs([a_job() for _ in range(8)])
    for _ in ("as it happened", "rolled up"):
        asked = (60.0, 1200.0, 3 * 3600.0, 2 * 86_400.0, 4 * 86_400.0, 300 * 86_400.0)
        found = [(await _stats(backend, time_range_s=range_s)).submitted for range_s in asked]
        assert found == [8, 12, 14, 14, 15, 15]
        await _roll_up(backend)


@proves(
    "external-api.LatencyStats.rule.1",
    "external-api.LatencyStats.rule.2",
    "external-api.LatencyStats.rule.3",
    "external-api.LatencyStats.rule.4",
)
async def test_percentiles_are_those_of_the_log(backend: Contract, store: Store) -> None:
    """Of what each attempt really took, by the histogram of the product."""
    await backend.enqueue_jobs([a_job(type=f"t{n % 3}") for n in range(20)])
    for n in range(4):
        await store.age(1.0 + n * 7)
        await _end(backend, await _claim(backend, 5), Event.COMPLETE)
    assert isinstance(backend, EventLog)
    batches = await backend.read_events()
    waits = sorted(us for batch in batches for us in batch.wait_us)
    runs = sorted(us or 0 for batch in batches for us in batch.run_us)
    for _ in ("as it happened", "rolled up"):
        stats = await _stats(backend)
        for latency, took in ((stats.queue_latency, waits), (stats.execution_time, runs)):
            assert len(took) == 20
            assert latency.max_us == took[-1]
            assert latency.p50_us == min(value_of(bucket_of(took[9])), took[-1])
            assert latency.p90_us == min(value_of(bucket_of(took[17])), took[-1])
            assert latency.p99_us == min(value_of(bucket_of(took[19])), took[-1])
        await _roll_up(backend)


@proves("external-api.QueueStats.rule.11", "external-api.QueueStats.rule.12")
async def test_what_came_to_no_outcome_has_no_execution_time(backend: Contract) -> None:
    await backend.enqueue_jobs([a_job(max_attempts=9) for _ in range(4)])
    held = await _claim(backend, 4)
    await _end(backend, held[:1], Event.HAND_BACK)
    await _end(backend, held[1:2], Event.RELEASE)
    await backend.mark_worker_unresponsive("w")
    stats = await _stats(backend)
    assert stats.execution_time.max_us is None
    assert stats.queue_latency.max_us is not None
    assert (stats.attempts_failed, stats.running) == (0, 0)


async def test_how_long_a_job_that_was_given_up_ran_nobody_knows(backend: Contract) -> None:
    await backend.enqueue_job(a_job())
    await _end(backend, await _claim(backend, 1), Event.MARK_UNKNOWN_STOPPED)
    stats = await _stats(backend)
    assert (stats.cancelled, stats.execution_time.max_us) == (1, None)


@proves("external-api.QueueStats.expect.2")
async def test_rolling_up_changes_nothing_and_ends(backend: Contract, store: Store) -> None:
    await _a_day(backend)
    before = await _stats(backend)
    assert isinstance(backend, Statistics)
    assert await backend.roll_up() >= 0
    assert await backend.roll_up() == 0
    other = await store.open()
    assert isinstance(other, Statistics)
    assert await other.roll_up() == 0
    after = await _stats(other)
    same = {"submitted", "completed", "failed", "queue_latency", "execution_time", "by_type"}
    assert {name: getattr(before, name) for name in same} == {
        name: getattr(after, name) for name in same
    }


@pytest.mark.parametrize("rolled", [False, True], ids=["as-it-happened", "rolled-up"])
async def test_deleted_jobs_stay_in_what_happened(backend: Contract, rolled: bool) -> None:
    jobs: list[Job] = [a_job(type="mail") for _ in range(3)]
    await backend.enqueue_jobs(jobs)
    await _end(backend, await _claim(backend, 3), Event.COMPLETE)
    if rolled:
        await _roll_up(backend)
    await backend.delete_jobs([], [job.id for job in jobs])
    stats = await _stats(backend)
    assert (stats.submitted, stats.completed, stats.scheduled) == (3, 3, 0)
    assert stats.by_type == {"mail": Counts(completed=3)}
    assert stats.execution_time.max_us is not None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"time_range_s": 0.0}, "time_range_s"),
        ({"time_range_s": -1.0}, "time_range_s"),
        ({"time_range_s": float("nan")}, "time_range_s"),
        ({"time_range_s": float("inf")}, "time_range_s"),
        ({"time_range_s": MAX_TIME_RANGE_S + 1}, "time_range_s"),
        ({"time_range_s": True}, "time_range_s"),
        ({"time_range_s": "PT1H"}, "time_range_s"),
        ({"namespace": ""}, "namespace"),
        ({"breakdown_by": frozenset({"COLOUR"})}, "breakdown_by"),
    ],
)
async def test_a_window_that_is_none_is_refused(
    backend: Contract, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await _stats(backend, **fields)
    assert refused.value.field == field


@pytest.mark.parametrize("wrong", [None, 7, "x", [7]])
async def test_what_is_no_window_is_refused(backend: Contract, wrong: Any) -> None:
    assert isinstance(backend, Statistics)
    with pytest.raises(InvalidArgument) as refused:
        await backend.window_stats(wrong)
    assert refused.value.field == "window"
