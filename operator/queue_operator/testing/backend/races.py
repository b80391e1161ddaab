"""Callers at the same time, each on a backend of its own. QUEUE_OPERATOR_TEST_FULL=1 makes the
races longer.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import pytest

from queue_operator.domain.errors import InvalidTransition, QueueError
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, job_in, running
from queue_operator.testing.store import TTL_S, Contract, Store

_FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
_ROUNDS: Final = 200
_SERIES: Final = 50 if _FULL else 1
_RACES: Final = 1000 if _FULL else 20


async def _hold(backend: Contract, jobs: list[Job], name: str = "w") -> dict[str, str]:
    """Claims all of `jobs`, which have a type in common; the token of each."""
    demand = Demand(assignee_id=name, limit=len(jobs), types=frozenset({jobs[0].type}))
    claimed = await backend.claim([demand], lease_ttl_s=TTL_S)
    assert len(claimed) == len(jobs)
    return {one.job_id: one.token for one in claimed}


@proves("backend-api.Invariants.rule.1", "backend-api.Invariants.rule.8")
async def test_a_finish_and_a_sweep_at_once_free_the_slot_once(store: Store) -> None:
    worker, sweeper = await store.open(), await store.open()
    seen: Counter[bool] = Counter()
    for round_ in range(_RACES):
        job, token = await running(worker)
        await store.age(TTL_S + 1)
        calls = [
            worker.complete_job(job.id, b"", token=token),
            sweeper.expire_leases(lease_ttl_s=TTL_S),
        ]
        # The first of two has a head start; it must not matter which it is.
        if round_ % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls)
        [freed] = [answer for answer in answers if isinstance(answer, dict)]
        [lost] = [answer for answer in answers if isinstance(answer, list)]
        # A sweep that came first makes the completion a late one, which still counts.
        assert (freed == {"worker-1": 1}) != (len(lost) == 1)
        assert (await worker.get_job(job.id)).state is JobState.COMPLETED
        seen[bool(lost)] += 1
    assert seen.total() == _RACES


@proves("backend-api.Invariants.rule.1", "backend-api.CancelJobs.expect.2")
@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL])
async def test_a_batch_cancel_against_outcomes_frees_each_slot_once(
    store: Store, event: Event
) -> None:
    worker, caller = await store.open(), await store.open()
    for _ in range(_RACES):
        jobs = [a_job(type="t") for _ in range(8)]
        await worker.enqueue_jobs(jobs)
        tokens = await _hold(worker, jobs)
        outcomes = [
            Outcome(job.id, event, token=tokens[job.id], result=b"", error=ErrorInfo("boom"))
            for job in jobs
        ]
        settled, cancelled = await asyncio.gather(
            worker.settle(outcomes), caller.cancel_jobs([], [job.id for job in reversed(jobs)])
        )
        for job, answer in zip(jobs, settled, strict=True):
            state = (await worker.get_job(job.id)).state
            was_cancelled = job.id in cancelled.cancelled_job_ids
            if answer.error is not None:
                assert isinstance(answer.error, InvalidTransition)
                assert (state, was_cancelled, event) == (JobState.CANCELLING, True, Event.FAIL)
            elif event is Event.COMPLETE:
                assert (state, answer.freed_assignee_id) == (JobState.COMPLETED, "w")
            else:
                after = JobState.STOPPED if was_cancelled else JobState.FAILED_RETRY
                assert (state, answer.freed_assignee_id) == (after, "w")
        await worker.delete_jobs([], await _end(worker, jobs))


async def _end(backend: Contract, jobs: list[Job]) -> list[str]:
    await backend.cancel_jobs([], [job.id for job in jobs])
    await backend.reset_running_jobs()
    return [job.id for job in jobs]


@proves("backend-api.CompleteJob.expect.1")
async def test_complete_job_by_racing_callers_is_applied_once(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    for _ in range(_RACES):
        job, _ = await running(backends[0])
        answers = await asyncio.gather(
            *(one.complete_job(job.id, str(n).encode()) for n, one in enumerate(backends)),
            return_exceptions=True,
        )
        [winner] = [n for n, answer in enumerate(answers) if answer == {"worker-1": 1}]
        losers = [answer for n, answer in enumerate(answers) if n != winner]
        assert all(isinstance(answer, InvalidTransition) for answer in losers)
        assert (await backends[0].get_job(job.id)).result == str(winner).encode()


@proves("backend-api.Invariants.rule.1")
async def test_racing_outcomes_of_every_kind_apply_in_some_order(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    for _ in range(_RACES):
        job, token = await job_in(backends[0], JobState.CANCELLING)
        events = [Event.COMPLETE, Event.STOP, Event.ACK_UNKNOWN, Event.STOP_WITH_RETRY]
        answers = await asyncio.gather(
            *(
                one.settle([Outcome(job.id, event, token=token, result=b"")])
                for one, event in zip(backends, events, strict=True)
            )
        )
        applied = [event for event, [a] in zip(events, answers, strict=True) if a.error is None]
        # A late success is the only one that may follow another, and only UNKNOWN_STOPPED.
        assert len(applied) == 1 or set(applied) == {Event.ACK_UNKNOWN, Event.COMPLETE}
        freed = [a.freed_assignee_id for [a] in answers if a.freed_assignee_id]
        assert freed == ([] if Event.ACK_UNKNOWN in applied else ["worker-1"])


@proves(
    "backend-api.ImplementationGuidelines.expect.2",
    "backend-api.TestingRequirements.must.3",
    "backend-api.ImplementationGuidelines.must.11",
)
async def test_twelve_workers_do_every_job_once(store: Store) -> None:
    backends = [await store.open() for _ in range(3)]
    jobs = [a_job(type="t") for _ in range(240)]
    await backends[0].enqueue_jobs(jobs)
    done: Counter[str] = Counter()

    async def work(backend: Contract, name: str) -> None:
        while sum(done.values()) < len(jobs):
            for job in await backend.dequeue_jobs(name, [], 5):
                assert await backend.complete_job(job.id, name.encode()) == {name: 1}
                done[job.id] += 1

    await asyncio.gather(*(work(backends[n % 3], f"w{n}") for n in range(12)))
    assert done == Counter(job.id for job in jobs)
    stats = await backends[0].get_job_stats([])
    assert (stats.completed_jobs, stats.total_jobs) == (240, 240)


@proves(
    "backend-api.ImplementationGuidelines.expect.1",
    "backend-api.Invariants.rule.1",
    "backend-api.ImplementationGuidelines.must.12",
)
@pytest.mark.parametrize("series", range(_SERIES))
async def test_overlapping_batches_end_without_deadlock(store: Store, series: int) -> None:
    backends = [await store.open() for _ in range(4)]
    jobs = [a_job(type="t", tags=frozenset({"all"})) for _ in range(24)]
    await backends[0].enqueue_jobs(jobs)
    rng = Random(series)  # noqa: S311

    def shuffled() -> list[str]:
        ids = [job.id for job in jobs]
        rng.shuffle(ids)
        return ids[:12]

    # Each takes half of the jobs in an order of its own, so that locks cross.
    batches: list[Callable[[Contract], Awaitable[object]]] = [
        lambda b: b.dequeue_jobs("w", ["all"], 12),
        lambda b: b.settle([Outcome(x, Event.HAND_BACK) for x in shuffled()]),
        lambda b: b.settle([Outcome(x, Event.FAIL, error=ErrorInfo("x")) for x in shuffled()]),
        lambda b: b.settle([Outcome(x, Event.RETRY_NOW) for x in shuffled()]),
        lambda b: b.extend_leases([Held(x, "t") for x in shuffled()], lease_ttl_s=TTL_S),
        lambda b: b.mark_worker_unresponsive("w"),
        lambda b: b.expire_leases(lease_ttl_s=TTL_S),
        lambda b: b.get_job_stats(["all"]),
    ]
    for _ in range(_ROUNDS):
        picked = rng.choices(batches, k=len(backends))
        calls = (batch(one) for batch, one in zip(picked, backends, strict=True))
        await asyncio.gather(*calls)
    assert (await backends[0].get_job_stats(["all"])).total_jobs == 24
    await _deletions_cross_cancels(backends, jobs, rng)


async def _deletions_cross_cancels(backends: list[Contract], jobs: list[Job], rng: Random) -> None:
    """The same jobs are cancelled, deleted and submitted again, all at once."""
    ids = [job.id for job in jobs]
    for _ in range(_ROUNDS // 4):
        rng.shuffle(ids)
        batches = [
            backends[0].cancel_jobs([], ids[:16]),
            backends[1].cancel_jobs([], ids[8:]),
            backends[2].delete_jobs([], ids[::2]),
            backends[3].enqueue_jobs([job for job in jobs if job.id in ids[::3]]),
        ]
        # Live jobs cannot be deleted and stored ones not stored again: that is no deadlock.
        answers = await asyncio.gather(*batches, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert all(isinstance(one, QueueError) and not one.retryable for one in refused), refused
