"""Suspended jobs: each is claimed by no replica, keeps its place, and is resumed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import (
    Glance,
    JobSearch,
    Places,
    Signals,
    Suspensions,
    Topic,
    Usages,
)
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE, Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase, phase
from queue_operator.testing.breaking import needs_the_store, whole_or_not_at_all
from queue_operator.testing.driving import a_job, apply, claim, job_in, passed, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import ELIGIBLE, TERMINAL

_ANY: Final = Demand(assignee_id="w", limit=100)
_AT_ONCE: Final = Backoff(BackoffStrategy.CONSTANT, initial_delay_s=0.0)
_LATER: Final = Backoff(BackoffStrategy.CONSTANT, initial_delay_s=500.0)


async def _set(backend: Contract, on: bool, *jobs: Job) -> set[str]:
    """Ids of those that were left alone."""
    assert isinstance(backend, Suspensions)
    left = await backend.set_suspended({(job.namespace, job.id): on for job in jobs})
    return {job_id for _, job_id in left}


async def _suspend(backend: Contract, *jobs: Job) -> None:
    assert await _set(backend, True, *jobs) == set()


async def _resume(backend: Contract, *jobs: Job) -> None:
    assert await _set(backend, False, *jobs) == set()


async def _claimed(backend: Contract, **demand: Any) -> list[str]:
    """Ids of the jobs that are claimed."""
    assignments = await backend.claim([replace(_ANY, **demand)], lease_ttl_s=TTL_S)
    return [one.job_id for one in assignments]


async def _seen(backend: Contract, **demand: Any) -> bool:
    assert isinstance(backend, Glance)
    [there] = await backend.eligible_for([replace(_ANY, **demand)])
    return there


async def test_a_suspended_job_is_not_claimed_until_it_is_resumed(backend: Contract) -> None:
    jobs = [await submitted(backend, type="t", tags=frozenset({"x"})) for _ in range(3)]
    assert await _seen(backend)
    await _suspend(backend, *jobs)
    assert not await _seen(backend)
    assert await _claimed(backend) == []
    assert await backend.dequeue_jobs("w", ["x"], 5) == []
    await _resume(backend, jobs[1])
    assert await _seen(backend)
    assert await _claimed(backend) == [jobs[1].id]
    await _resume(backend, *jobs)
    assert [job.id for job in await backend.dequeue_jobs("w", ["x"], 5)] == [
        jobs[0].id,
        jobs[2].id,
    ]


async def test_a_job_that_is_submitted_suspended_waits(backend: Contract) -> None:
    held = a_job(type="t", suspended=True)
    batch = [a_job(type="t", suspended=n % 2 == 0) for n in range(4)]
    assert await backend.enqueue_job(held) == held.id
    answers = await backend.submit(batch, atomic=False)
    assert [one.error for one in answers] == [None] * 4
    assert await _claimed(backend) == [batch[1].id, batch[3].id]
    await _resume(backend, held, batch[0], batch[2])
    assert await _claimed(backend) == [held.id, batch[0].id, batch[2].id]


async def test_a_large_batch_may_have_suspended_jobs(backend: Contract) -> None:
    jobs = [a_job(type="t", suspended=n == 700) for n in range(1500)]
    await backend.enqueue_jobs(jobs)
    claimed = await _claimed(backend, limit=2000)
    assert claimed == [job.id for job in jobs if not job.suspended]
    await _resume(backend, jobs[700])
    assert await _claimed(backend) == [jobs[700].id]


async def test_a_record_tells_that_its_job_is_suspended_and_since_when(backend: Contract) -> None:
    job = await submitted(backend)
    plain = await backend.get_job(job.id)
    assert (plain.suspended, plain.suspension_at) == (False, None)
    await _suspend(backend, job)
    held = await backend.get_job(job.id)
    assert held.suspended
    assert held.suspension_at is not None
    assert abs(datetime.now(UTC) - held.suspension_at) < timedelta(minutes=1)
    assert held == replace(plain, suspended=True, suspension_at=held.suspension_at)
    await _suspend(backend, job)
    assert await backend.get_job(job.id) == held
    await _resume(backend, job)
    free = await backend.get_job(job.id)
    assert free.suspension_at is not None
    assert (free.suspended, free.suspension_at > held.suspension_at) == (False, True)
    await _resume(backend, job)
    assert await backend.get_job(job.id) == free
    born = await submitted(backend, suspended=True)
    stored = await backend.get_job(born.id)
    assert (stored.suspended, stored.suspension_at) == (True, stored.created_at)
    assert (await backend.look_up([born.id]))[born.id].suspended
    page = await backend.search_jobs(JobSearch(namespace=DEFAULT_NAMESPACE))
    assert {one.id: one.suspended for one in page.jobs} == {job.id: False, born.id: True}


async def test_a_suspended_job_is_shown_and_counted_as_one_that_waits(backend: Contract) -> None:
    job = await submitted(backend, tags=frozenset({"x"}))
    later = await submitted(backend, delay_s=500.0)
    await _suspend(backend, job, later)
    stats = await backend.get_job_stats([])
    assert (stats.total_jobs, stats.pending_jobs) == (2, 2)
    assert isinstance(backend, Usages)
    assert (await backend.usage_of([DEFAULT_NAMESPACE]))[DEFAULT_NAMESPACE].pending == 2
    now = datetime.now(UTC) + timedelta(seconds=5)
    for one, shown in ((job, Phase.SCHEDULED), (later, Phase.DELAYED)):
        assert phase(await backend.get_job(one.id), now) is shown
        search = JobSearch(namespace=DEFAULT_NAMESPACE, phases=frozenset({shown}), count=True)
        page = await backend.search_jobs(search)
        assert ([found.id for found in page.jobs], page.total_count) == ([one.id], 1)


async def test_a_resumed_job_has_the_place_that_it_had(backend: Contract) -> None:
    jobs = [await submitted(backend, type="t") for _ in range(3)]
    urgent = await submitted(backend, type="t", priority=Priority.HIGH)
    await _suspend(backend, jobs[0], urgent)
    assert isinstance(backend, Places)
    # Who is suspended is in nobody's way.
    assert (await backend.place_of(jobs[2].id)).ahead == 1
    await _resume(backend, jobs[0], urgent)
    assert (await backend.place_of(jobs[2].id)).ahead == 3
    assert await _claimed(backend) == [urgent.id, *(job.id for job in jobs)]


async def test_a_resumed_job_has_waited_since_it_was_resumed(
    backend: Contract, store: Store
) -> None:
    job = await submitted(backend)
    await _suspend(backend, job)
    await store.age(5000.0)
    await _resume(backend, job)
    resumed = await backend.get_job(job.id)
    assert resumed.eligible_at is not None
    assert resumed.created_at is not None
    assert resumed.eligible_at == resumed.suspension_at
    assert resumed.eligible_at - resumed.created_at >= timedelta(seconds=5000.0)


async def test_delays_go_on_while_a_job_is_suspended(backend: Contract, store: Store) -> None:
    short, long = [await submitted(backend, delay_s=delay_s) for delay_s in (100.0, 1000.0)]
    await _suspend(backend, short, long)
    await passed(backend, store, 101.0)
    assert await _claimed(backend) == []
    await _resume(backend, short, long)
    assert await _claimed(backend) == [short.id]
    stored = await backend.get_job(long.id)
    assert stored.eligible_at is not None
    assert stored.created_at is not None
    assert stored.eligible_at - stored.created_at == timedelta(seconds=1000.0)
    await passed(backend, store, 900.0)
    assert await _claimed(backend) == [long.id]


async def test_parents_may_end_while_a_job_is_suspended(backend: Contract) -> None:
    parents = [await submitted(backend, type="parent") for _ in range(2)]
    held, free, kept = [
        await submitted(backend, depends_on=tuple(one.id for one in parents), suspended=born)
        for born in (False, False, True)
    ]
    await _suspend(backend, held, free)
    await _resume(backend, free)
    assert (await backend.get_job(held.id)).waiting_for_dependencies
    for parent in parents:
        await backend.complete_job(parent.id, b"", token=(await claim(backend, parent)).token)
    stored = await backend.get_job(held.id)
    assert (stored.suspended, stored.waiting_for_dependencies) == (True, False)
    assert await _claimed(backend) == [free.id]
    # A claim that takes nothing looks for what has become due.
    for _ in range(2):
        assert await _claimed(backend) == []
    await _resume(backend, held, kept)
    assert await _claimed(backend) == [held.id, kept.id]


async def test_a_suspended_job_is_skipped_where_its_parent_ends_badly(backend: Contract) -> None:
    parent = await submitted(backend)
    child = await submitted(backend, depends_on=(parent.id,), suspended=True)
    await backend.cancel_jobs([], [parent.id])
    stored = await backend.get_job(child.id)
    assert (stored.state, stored.reason) == (JobState.UNSCHEDULED, Event.SKIP.value)


_AGAIN: Final = (Event.FAIL, Event.RELEASE, Event.HAND_BACK, Event.LOSE)


@pytest.mark.parametrize("event", _AGAIN)
async def test_a_job_that_runs_goes_on_and_waits_when_it_is_tried_again(
    backend: Contract, event: Event
) -> None:
    job, token = await running(backend, max_attempts=5, backoff=_AT_ONCE)
    await _suspend(backend, job)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.suspended) == (JobState.RUNNING, True)
    assert (await apply(backend, job, event, token)).error is None
    stored = await backend.get_job(job.id)
    assert stored.state in ELIGIBLE
    assert stored.suspended
    assert await _claimed(backend) == []
    await _resume(backend, job)
    assert await _claimed(backend) == [job.id]


async def test_a_job_that_runs_completes_although_it_is_suspended(backend: Contract) -> None:
    job, token = await running(backend)
    await _suspend(backend, job)
    await backend.complete_job(job.id, b"done", token=token)
    assert (await backend.get_job(job.id)).state is JobState.COMPLETED


async def test_a_suspension_that_ended_while_the_job_ran_is_over(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=5, backoff=_AT_ONCE)
    await _suspend(backend, job)
    await _resume(backend, job)
    await apply(backend, job, Event.FAIL, token)
    assert await _claimed(backend) == [job.id]


async def test_a_backoff_goes_on_while_a_job_is_suspended(backend: Contract, store: Store) -> None:
    job, token = await running(backend, max_attempts=5, backoff=_LATER)
    await apply(backend, job, Event.FAIL, token)
    await _suspend(backend, job)
    await passed(backend, store, 501.0)
    assert await _claimed(backend) == []
    await _resume(backend, job)
    assert await _claimed(backend) == [job.id]


async def test_a_lease_runs_out_and_its_suspended_job_waits(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend, max_attempts=3)
    await _suspend(backend, job)
    await store.age(TTL_S + 1)
    assert [one.job_id for one in await backend.expire_leases(lease_ttl_s=TTL_S)] == [job.id]
    assert (await backend.get_job(job.id)).state is JobState.UNKNOWN_RETRY
    assert await _claimed(backend) == []
    await _resume(backend, job)
    assert await _claimed(backend) == [job.id]


@pytest.mark.parametrize("while_it_runs", [True, False])
async def test_a_suspended_job_that_was_lost_on_its_last_attempt_is_given_up(
    backend: Contract, store: Store, while_it_runs: bool
) -> None:
    job, _ = await running(backend, max_attempts=1)
    if while_it_runs:
        await _suspend(backend, job)
    await store.age(TTL_S + 1)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    if not while_it_runs:
        await _suspend(backend, job)
    await store.age(TTL_S + 1)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert (await backend.get_job(job.id)).state is JobState.DEAD_LETTER


async def test_resuming_makes_nobody_run_who_has_no_attempt_left(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend, max_attempts=1)
    await store.age(TTL_S + 1)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    await _suspend(backend, job)
    # Its time comes, and with it the sweep that gives it up, which is late.
    await store.age(TTL_S + 1)
    assert (await backend.get_job(job.id)).state is JobState.UNKNOWN_RETRY
    await _resume(backend, job)
    for _ in range(2):
        assert await _claimed(backend) == []


async def test_an_execution_timeout_ends_the_attempt_of_a_suspended_job(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend, timeout_s=10.0, max_attempts=3, backoff=_AT_ONCE)
    await _suspend(backend, job)
    await store.age(10.0 + TTL_S)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert (await backend.get_job(job.id)).state in ELIGIBLE
    assert await _claimed(backend) == []


async def test_a_suspended_job_is_cancelled_and_deleted_as_any(backend: Contract) -> None:
    job = await submitted(backend, tags=frozenset({"x"}))
    born = await submitted(backend, tags=frozenset({"x"}), suspended=True)
    await _suspend(backend, job)
    cancelled = await backend.cancel_jobs(["x"], [])
    assert set(cancelled.cancelled_job_ids) == {job.id, born.id}
    for one in (job, born):
        assert (await backend.get_job(one.id)).state is JobState.UNSCHEDULED
    assert await backend.delete_jobs([], [job.id, born.id]) == 2
    assert (await backend.get_job_stats([])).total_jobs == 0
    # Of the one that was deleted nothing is left that another would inherit.
    await backend.enqueue_job(job)
    assert await _claimed(backend) == [job.id]


async def test_a_manual_retry_of_a_suspended_job_waits(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=5)
    await _suspend(backend, job)
    await apply(backend, job, Event.EXHAUST, token)
    [answer] = await backend.settle([Outcome(job.id, Event.RETRY_NOW)])
    assert answer.error is None
    assert await _claimed(backend) == []
    await _resume(backend, job)
    assert await _claimed(backend) == [job.id]


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_a_job_that_has_ended_is_left_alone(backend: Contract, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    assert await _set(backend, True, job) == {job.id}
    assert await _set(backend, False, job) == {job.id}
    assert await backend.get_job(job.id) == before


async def test_a_job_that_is_not_there_is_told_of_and_the_others_are_changed(
    backend: Contract,
) -> None:
    job, elsewhere = await submitted(backend), a_job(namespace="nowhere")
    stranger = replace(job, namespace="other")
    await submitted(backend, namespace="other")
    assert await _set(backend, True, a_job(id="nobody"), job, elsewhere, stranger) == {
        "nobody",
        elsewhere.id,
        stranger.id,
    }
    assert (await backend.get_job(job.id)).suspended
    assert isinstance(backend, Suspensions)
    assert not await backend.set_suspended({})


async def test_one_call_suspends_some_and_resumes_others(backend: Contract) -> None:
    held, free = await submitted(backend, suspended=True), await submitted(backend)
    assert isinstance(backend, Suspensions)
    wanted = {("default", held.id): False, ("default", free.id): True}
    assert not await backend.set_suspended(wanted)
    assert await _claimed(backend) == [held.id]


async def test_nothing_that_is_suspended_is_claimed_on_another_replica(store: Store) -> None:
    here, there = await store.open(), await store.open()
    first, job, other = [await submitted(here, type=kind) for kind in ("first", "t", "t")]
    # It has looked at the store before.
    assert await _claimed(there, types=frozenset({"first"})) == [first.id]
    assert await _seen(there)
    await _suspend(here, job)
    assert await _claimed(there) == [other.id]
    assert not await _seen(there)
    await _resume(there, job)
    assert await _claimed(here) == [job.id]


async def test_whoever_listens_hears_of_a_job_that_is_resumed(store: Store) -> None:
    here, there = await store.open(), await store.open()
    job = await submitted(here, suspended=True)
    for backend in (there, here):
        assert isinstance(backend, Signals)
        topics = backend.listen()
        assert Topic.READY in await anext(topics)
        await _resume(here, job)
        while Topic.READY not in await anext(topics) or not await _seen(backend):
            pass
        await _suspend(here, job)
        await topics.aclose()  # type: ignore[attr-defined]
    await _resume(here, job)
    assert (await claim(there, job)).job_id == job.id


async def test_a_repeat_under_a_key_changes_no_suspension(backend: Contract) -> None:
    first = await submitted(backend, type="t", idempotency_key="key", suspended=True)
    again = a_job(type="t", idempotency_key="key")
    [answer] = await backend.submit([again])
    assert (answer.job_id, answer.duplicate) == (first.id, True)
    assert (await backend.get_job(first.id)).suspended
    await _resume(backend, first)
    [answer] = await backend.submit([a_job(type="t", idempotency_key="key", suspended=True)])
    assert (answer.job_id, answer.duplicate) == (first.id, True)
    assert await _claimed(backend) == [first.id]


_WRONG: Final[tuple[tuple[str, Any], ...]] = (
    ("wanted", None),
    ("wanted", [("default", "a")]),
    ("wanted", {"a": True}),
    ("namespace", {("", "a"): True}),
    ("namespace", {(7, "a"): True}),
    ("job_id", {("default", "a\x00"): True}),
    ("job_id", {("default", "x" * 256): True}),
    ("suspended", {("default", "a"): "false"}),
    ("suspended", {("default", "a"): None}),
)


@pytest.mark.parametrize(("field", "wrong"), _WRONG)
async def test_a_wrong_name_is_refused_by_name(backend: Contract, field: str, wrong: Any) -> None:
    assert isinstance(backend, Suspensions)
    with pytest.raises(InvalidArgument) as raised:
        await backend.set_suspended(wrong)
    assert raised.value.field == field


async def test_suspensions_need_the_store(backend: Contract, store: Store) -> None:
    job = await submitted(backend)
    await needs_the_store(
        store, backend, lambda: _set(backend, True, job), lambda: _set(backend, False, job)
    )
    assert await _claimed(backend) == [job.id]


@pytest.mark.parametrize("on", [True, False])
async def test_a_cancelled_suspension_happens_or_does_not(backend: Contract, on: bool) -> None:
    async def bring() -> Job:
        return await submitted(backend, suspended=not on)

    async def call(job: Job) -> None:
        await _set(backend, on, job)

    async def read(job: Job) -> tuple[bool, bool]:
        suspended = (await backend.get_job(job.id)).suspended
        return suspended, await _seen(backend, types=frozenset({job.type}))

    await whole_or_not_at_all(bring, call, read)
