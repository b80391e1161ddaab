"""`queue-semantics.md`: what the queue promises, what it does not, and its invariants."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from queue_operator.domain.errors import DuplicateJob, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import SEMANTIC, Semantic
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, apply, claim, happens, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import ELIGIBLE, SLOT_HOLDING, TERMINAL

_EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)


def _at(minutes: float, **fields: object) -> Job:
    return a_job(created_at=_EPOCH + timedelta(minutes=minutes), **fields)


async def _taken(backend: Contract, namespace: str = "default") -> list[str]:
    """Ids in the order in which one worker gets the jobs."""
    ids = []
    while jobs := await backend.dequeue_jobs("w", [], 1, namespace=namespace):
        ids += [job.id for job in jobs]
    return ids


async def _lost_by_expiry(backend: Contract, store: Store) -> None:
    await store.age(TTL_S + 1)
    assert len(await backend.expire_leases(lease_ttl_s=TTL_S)) == 1


# At-least-once delivery


@proves(
    "queue-semantics.AtLeastOnceDelivery.rule.1",
    "queue-semantics.AtLeastOnceDelivery.rule.2",
)
async def test_a_job_is_handed_out_until_it_has_ended(backend: Contract, store: Store) -> None:
    job = await submitted(backend)
    await claim(backend, job, "w1")
    await _lost_by_expiry(backend, store)
    await claim(backend, job, "w2")
    await backend.mark_worker_unresponsive("w2")
    await claim(backend, job, "w3")
    await backend.reset_running_jobs()
    token = (await claim(backend, job, "w4")).token
    await apply(backend, job, Event.HAND_BACK, token)
    token = (await claim(backend, job, "w5")).token
    await backend.fail_job(job.id, "boom", token=token)
    token = (await claim(backend, job, "w6")).token
    await backend.complete_job(job.id, b"", token=token)
    attempts = (await backend.get_history(job.id)).attempts
    assert [attempt.assignee_id for attempt in attempts] == [f"w{n}" for n in range(1, 7)]


@proves("queue-semantics.AtLeastOnceDelivery.rule.3", "queue-semantics.Durability.rule.2")
async def test_what_was_acknowledged_is_there_and_what_was_refused_is_not(
    backend: Contract,
) -> None:
    stored = [a_job() for _ in range(20)]
    assert len(await backend.enqueue_jobs(stored)) == 20
    refused = [a_job() for _ in range(5)]
    with pytest.raises(DuplicateJob):
        await backend.enqueue_jobs([*refused, stored[0]])
    for n, job in enumerate(stored):
        if n % 2:
            await backend.complete_job(job.id, b"", token=(await claim(backend, job)).token)
    for n, job in enumerate(stored):
        state = (await backend.get_job(job.id)).state
        assert state is (JobState.COMPLETED if n % 2 else JobState.INITIAL_PENDING)
    assert (await backend.get_job_stats([])).total_jobs == 20


# Durability


@proves("queue-semantics.Durability.rule.1")
async def test_jobs_outlive_the_backend_that_stored_them(store: Store) -> None:
    first = await store.open()
    jobs = {state: (await job_in(first, state))[0] for state in JobState}
    before = {state: await first.get_job(job.id) for state, job in jobs.items()}
    stats = await first.get_job_stats([])
    await first.close()
    second = await store.open()
    assert {state: await second.get_job(job.id) for state, job in jobs.items()} == before
    assert await second.get_job_stats([]) == stats


@proves("queue-semantics.Durability.rule.2")
async def test_what_one_call_wrote_every_other_sees_whole(store: Store) -> None:
    writer, reader = await store.open(), await store.open()
    jobs = [a_job(tags=frozenset({"batch"})) for _ in range(300)]
    writing = asyncio.ensure_future(writer.enqueue_jobs(jobs))
    seen = set()
    while not writing.done():
        seen.add((await reader.get_job_stats(["batch"])).total_jobs)
        await asyncio.sleep(0)
    await writing
    assert seen <= {0, 300}
    assert (await reader.get_job_stats(["batch"])).total_jobs == 300


# Ordering


@proves("queue-semantics.Ordering.rule.1")
async def test_first_in_first_out(backend: Contract) -> None:
    jobs = [await submitted(backend) for _ in range(10)]
    assert await _taken(backend) == [job.id for job in jobs]


@proves("queue-semantics.Ordering.rule.2")
async def test_namespaces_do_not_affect_each_other(backend: Contract) -> None:
    jobs = {
        name: [_at(n if name == "a" else -n, namespace=name) for n in range(5)] for name in "ab"
    }
    await backend.enqueue_jobs([*jobs["a"], *jobs["b"]])
    await backend.reset_running_jobs(namespace="b")
    assert await _taken(backend, "a") == [job.id for job in jobs["a"]]
    assert await _taken(backend, "b") == [job.id for job in reversed(jobs["b"])]


@proves("queue-semantics.Ordering.rule.3", "queue-semantics.NonGuarantees.rule.3")
async def test_a_priority_moves_a_job_forward_or_back(backend: Contract) -> None:
    low, normal, high = (
        _at(0, priority=Priority.LOW),
        _at(10, priority=Priority.NORMAL),
        _at(20, priority=Priority.HIGH),
    )
    await backend.enqueue_jobs([low, normal, high])
    assert await _taken(backend) == [high.id, normal.id, low.id]


@proves("queue-semantics.Ordering.rule.3", "queue-semantics.Ordering.rule.1")
@pytest.mark.parametrize(("minutes", "in_time"), [(10, False), (140, True)])
async def test_urgent_jobs_beyond_the_capacity_keep_nobody_out_for_ever(
    backend: Contract, minutes: int, in_time: bool
) -> None:
    """Every minute ten jobs are done and eleven urgent ones come. What is less urgent by two hours
    has them all pass for that long, and after that goes first, however many there are.
    """
    low = [_at(n / 100, type="t", priority=Priority.LOW) for n in range(20)]
    await backend.enqueue_jobs(low)
    taken: list[Job] = []
    urgent: list[Job] = []
    for minute in range(minutes):
        times = [minute + n / 100 for n in range(11)]
        new = [_at(at, type="t", priority=Priority.HIGH) for at in times]
        urgent += new
        await backend.enqueue_jobs(new)
        taken += await backend.dequeue_jobs("w", [], 10)
    names = {job.id for job in low}
    late = [job.id for job in taken if job.id in names]
    assert late == ([job.id for job in low] if in_time else [])
    # Of one priority the oldest are first.
    assert [job.id for job in taken if job.id not in names] == [
        job.id for job in urgent[: len(taken) - len(late)]
    ]
    while some := await backend.dequeue_jobs("w", [], 100):
        taken += some
    assert {job.id for job in taken} == {job.id for job in (*low, *urgent)}


# Visibility


@proves("queue-semantics.Visibility.rule.1")
@pytest.mark.parametrize("state", SLOT_HOLDING)
async def test_a_leased_job_is_invisible_to_others(backend: Contract, state: JobState) -> None:
    await job_in(backend, state)
    assert await backend.dequeue_jobs("w", [], 5) == []


@proves("queue-semantics.Visibility.rule.2")
async def test_a_failed_job_is_visible_after_its_retry_time(
    backend: Contract, store: Store
) -> None:
    job = await submitted(backend)
    await backend.dequeue_jobs("w", [], 1)
    await backend.settle([Outcome(job.id, Event.FAIL, retry_after_s=50.0)])
    assert await backend.dequeue_jobs("w", [], 5) == []
    await store.age(51.0)
    assert [one.id for one in await backend.dequeue_jobs("w", [], 5)] == [job.id]


@proves("queue-semantics.Visibility.rule.3")
async def test_a_job_that_succeeded_is_never_given_out_again(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"", token=token)
    await backend.reset_running_jobs()
    await store.age(TTL_S * 100)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert (await apply(backend, job, Event.RETRY_NOW)).error is not None


# What is not promised


@proves("queue-semantics.NonGuarantees.rule.1")
async def test_a_job_may_run_twice_and_one_outcome_counts(backend: Contract, store: Store) -> None:
    job, first = await running(backend)
    await _lost_by_expiry(backend, store)
    second = (await claim(backend, job, "worker-2")).token
    # Both ran it to the end; the one whose lease is over comes first.
    with pytest.raises(StaleLease):
        await backend.complete_job(job.id, b"first", token=first)
    await backend.complete_job(job.id, b"second", token=second)
    assert (await backend.get_job(job.id)).result == b"second"


@proves("queue-semantics.NonGuarantees.rule.2")
async def test_a_retry_goes_behind_those_that_came_meanwhile(backend: Contract) -> None:
    jobs = [_at(n) for n in range(3)]
    await backend.enqueue_jobs(jobs)
    [first] = await backend.dequeue_jobs("w", [], 1)
    await backend.fail_job(first.id, "boom")
    assert await _taken(backend) == [jobs[1].id, jobs[2].id, jobs[0].id]


@proves("queue-semantics.NonGuarantees.rule.4")
async def test_workers_at_once_get_disjoint_jobs(store: Store) -> None:
    backends = [await store.open() for _ in range(3)]
    jobs = [await submitted(backends[0]) for _ in range(30)]
    shares = await asyncio.gather(
        *(one.dequeue_jobs(f"w{n}", [], 10) for n, one in enumerate(backends))
    )
    ids = [job.id for share in shares for job in share]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {job.id for job in jobs}


@proves("queue-semantics.NonGuarantees.rule.5")
async def test_a_job_can_be_claimed_at_once_by_anybody(store: Store) -> None:
    here, there = await store.open(), await store.open()
    job = await submitted(here)
    assert (await claim(there, job)).job_id == job.id


# Core invariants


@proves("queue-semantics.CoreInvariants.rule.1")
async def test_a_job_is_counted_in_exactly_one_state(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=1)
    for event in (
        Event.CLAIM,
        Event.HAND_BACK,
        Event.CLAIM,
        Event.FAIL,
        Event.RETRY_NOW,
        Event.CLAIM,
        Event.LOSE,
        Event.COMPLETE,
    ):
        assert await happens(backend, job, event, None)
        state = (await backend.get_job(job.id)).state
        counts = (await backend.get_job_stats([])).by_state
        assert {one: count for one, count in counts.items() if count} == {state: 1}


@proves("queue-semantics.CoreInvariants.rule.2")
async def test_one_worker_at_most_holds_a_job(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    for _ in range(10):
        job = await submitted(backends[0])
        answers = await asyncio.gather(
            *(one.dequeue_jobs(f"w{n}", [], 1) for n, one in enumerate(backends))
        )
        [(winner, [taken])] = [(n, answer) for n, answer in enumerate(answers) if answer]
        assert (taken.id, taken.assignee_id) == (job.id, f"w{winner}")
        await backends[0].complete_job(job.id, b"")


@proves("queue-semantics.CoreInvariants.rule.3")
@pytest.mark.parametrize("bound", [1, 2, 4])
async def test_a_job_is_handed_out_as_often_as_it_may_and_then_failed(
    backend: Contract, bound: int
) -> None:
    job = await submitted(backend, max_attempts=bound)
    for _ in range(bound):
        [taken] = await backend.dequeue_jobs("w", [], 5)
        await backend.fail_job(taken.id, "boom")
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert SEMANTIC[(await backend.get_job(job.id)).state] is Semantic.FAILED


@proves("queue-semantics.CoreInvariants.rule.4")
async def test_a_lease_is_over_after_its_ttl(backend: Contract, store: Store) -> None:
    job, _ = await running(backend)
    await store.age(TTL_S - 1)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    await store.age(2)
    assert len(await backend.expire_leases(lease_ttl_s=TTL_S)) == 1
    assert (await claim(backend, job, "worker-2")).job_id == job.id


# The four states


@proves("queue-semantics.States.rule.1")
async def test_ready_is_what_can_be_claimed(backend: Contract) -> None:
    for state in JobState:
        job, _ = await job_in(backend, state)
        ready = SEMANTIC[state] is Semantic.READY
        assert ready == (state in ELIGIBLE)
        assert await happens(backend, job, Event.CLAIM, None) == ready


@proves("queue-semantics.States.rule.2")
async def test_in_flight_is_what_a_worker_holds(backend: Contract) -> None:
    for state in JobState:
        await job_in(backend, state)
        held = {"worker-1": 1} if SEMANTIC[state] is Semantic.IN_FLIGHT else {}
        assert await backend.reset_running_jobs() == held


@proves("queue-semantics.States.rule.3", "queue-semantics.States.rule.4")
async def test_failed_and_succeeded_are_what_is_not_handed_out_again(backend: Contract) -> None:
    over = {s for s in JobState if SEMANTIC[s] in (Semantic.FAILED, Semantic.SUCCEEDED)}
    assert over == set(TERMINAL)
    assert {s for s in over if SEMANTIC[s] is Semantic.SUCCEEDED} == {JobState.COMPLETED}
    for state in sorted(over):
        await job_in(backend, state)
    assert await backend.dequeue_jobs("w", [], 50) == []
    stats = await backend.get_job_stats([])
    assert (stats.completed_jobs, stats.stopped_jobs) == (1, len(over) - 1)
