"""Calls that are cancelled wherever they wait: the caller is told, or nothing was done, or a
repeat finds what was done.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from queue_operator.backends.protocol import Freed
from queue_operator.domain.errors import (
    DuplicateJob,
    JobNotFound,
    Unavailable,
)
from queue_operator.domain.job import Demand, Job, Submitted
from queue_operator.domain.lease import Lost
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, apply, claim, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.walking import Walked, walk

Jobs = list[Job]


async def _three(backend: Contract, **fields: object) -> Jobs:
    """Jobs of a type and a tag that no other has."""
    first = a_job(**fields)
    tags = frozenset({first.id})
    jobs = [a_job(**{**fields, "type": first.type, "tags": tags}) for _ in range(3)]
    await backend.enqueue_jobs(jobs)
    return jobs


def _demand(jobs: Sequence[Job], assignee: str, limit: int = 3) -> Demand:
    return Demand(assignee_id=assignee, limit=limit, types=frozenset({jobs[0].type}))


async def _check_claims(store: Store, calls: Sequence[Walked[Jobs, list[str]]]) -> None:
    """What nobody was told of can be claimed by others, once, and no attempt was used up."""
    backend = await store.open()
    for one in calls:
        jobs = one.subject
        told = set(one.answers[0]) if one.answers else set()
        leased = {held.job_id for held in await backend.leased([jobs[0].id])}
        assert leased == told, f"{one}: {leased - told} are assigned, and nobody knows"
        others = await backend.claim([_demand(jobs, "other")], lease_ttl_s=TTL_S)
        again = {other.job_id for other in others}
        assert again == {job.id for job in jobs} - told, f"{one}: lost, or assigned twice"
        assert {other.attempt for other in others} <= {1}, one
        for job in jobs:
            assert (await backend.get_job(job.id)).state is JobState.RUNNING, one


@proves("backend-api.DequeueJobs.error.2")
@pytest.mark.parametrize("delay_s", [None, 50.0], ids=["due", "to be made due"])
async def test_a_cancelled_dequeue_leaves_its_jobs_to_others(
    store: Store, backend: Contract, delay_s: float | None
) -> None:
    async def bring() -> Jobs:
        jobs = await _three(backend, delay_s=delay_s)
        await store.age(60 if delay_s else 0)
        return jobs

    async def call(jobs: Jobs) -> list[str]:
        return [job.id for job in await backend.dequeue_jobs(jobs[0].id, jobs[0].tags, 3)]

    calls = [one async for one in walk(bring, call)]
    # After what is still under way.
    await backend.close()
    await _check_claims(store, calls)


async def test_a_cancelled_claim_leaves_its_jobs_to_others(store: Store, backend: Contract) -> None:
    async def bring() -> Jobs:
        return await _three(backend)

    async def call(jobs: Jobs) -> list[str]:
        # Two that ask for the same lane, by filters of their own, are not served by one look.
        by_tags = Demand(assignee_id=jobs[0].id, limit=1, tags=jobs[0].tags)
        demands = [_demand(jobs, jobs[0].id, 2), by_tags]
        return [one.job_id for one in await backend.claim(demands, lease_ttl_s=TTL_S)]

    calls = [one async for one in walk(bring, call)]
    await backend.close()
    await _check_claims(store, calls)


async def test_closing_waits_until_what_nobody_hears_of_is_back(store: Store) -> None:
    async def bring() -> tuple[Contract, Jobs]:
        backend = await store.open()
        jobs = await _three(backend)
        # While the call that comes next is under way.
        asyncio.get_running_loop().call_soon(
            lambda: closing.append(asyncio.create_task(backend.close()))
        )
        return backend, jobs

    async def call(one: tuple[Contract, Jobs]) -> list[str]:
        backend, jobs = one
        try:
            return [job.id for job in await backend.dequeue_jobs(jobs[0].id, [jobs[0].id], 3)]
        except Unavailable:
            return []

    closing: list[asyncio.Task[None]] = []
    calls = [one async for one in walk(bring, call)]
    await asyncio.gather(*closing)
    await _check_claims(
        store, [Walked(one.subject[1], one.when, one.place, one.answers) for one in calls]
    )


# Calls that a repeat finds done


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL, Event.RELEASE])
async def test_a_cancelled_outcome_is_found_by_a_repeat(backend: Contract, event: Event) -> None:
    async def bring() -> tuple[Job, str]:
        return await running(backend)

    async def call(one: tuple[Job, str]) -> object:
        return await apply(backend, one[0], event, one[1])

    counts = set()
    async for one in walk(bring, call):
        job, token = one.subject
        again = await apply(backend, job, event, token)
        assert again.error is None, one
        # Who was cancelled may not know whose slot is free now: the store says what is leased.
        assert again.repeated or again.freed_assignee_id == "worker-1", one
        assert job.id not in {held.job_id for held in await backend.leased(["worker-1"])}, one
        stored = await backend.get_job(job.id)
        counts.add((stored.transition, stored.retry_count, stored.failure_count, stored.attempt))
    assert len(counts) == 1, "some outcomes counted twice"


async def test_a_cancelled_loss_is_found_by_a_repeat(backend: Contract) -> None:
    async def bring() -> Job:
        job = await submitted(backend)
        await claim(backend, job, job.id)
        return job

    async def call(job: Job) -> Freed:
        return await backend.mark_worker_unresponsive(job.id)

    async for one in walk(bring, call):
        job = one.subject
        assert await backend.mark_worker_unresponsive(job.id) in ({}, {job.id: 1}), one
        await _check_lost(backend, job, one)


async def test_a_cancelled_sweep_is_found_by_a_repeat(store: Store, backend: Contract) -> None:
    async def bring() -> Job:
        job = await submitted(backend)
        await claim(backend, job, job.id, ttl_s=1)
        await store.age(2)
        return job

    async def call(job: Job) -> list[Lost]:
        return await backend.expire_leases(lease_ttl_s=1)

    async for one in walk(bring, call):
        await backend.expire_leases(lease_ttl_s=1)
        await _check_lost(backend, one.subject, one)


async def _check_lost(backend: Contract, job: Job, one: object) -> None:
    assert await backend.leased([job.id]) == [], one
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.transition) == (JobState.UNKNOWN_RETRY, 3), one


@pytest.mark.parametrize("atomic", [True, False], ids=["all or none", "each for itself"])
@pytest.mark.parametrize("key", ["", "key of "], ids=["ids", "keys"])
async def test_a_cancelled_submission_is_found_by_a_repeat(
    backend: Contract, key: str, atomic: bool
) -> None:
    async def bring() -> Jobs:
        jobs = [a_job() for _ in range(3)]
        tags = frozenset({jobs[0].id})
        return [replace(job, tags=tags, idempotency_key=key and key + job.id) for job in jobs]

    async def call(jobs: Jobs) -> list[Submitted]:
        return await backend.submit(jobs, atomic=atomic)

    async for one in walk(bring, call):
        jobs = one.subject
        answers = await backend.submit(jobs, atomic=False)
        assert {answer.job_id for answer in answers} == {job.id for job in jobs}, one
        for answer in answers:
            assert answer.error is None or (isinstance(answer.error, DuplicateJob) and not key), one
        assert (await backend.get_job_stats(jobs[0].tags)).total_jobs == len(jobs), one
        claimed = await backend.claim([_of_tags(jobs)], lease_ttl_s=TTL_S)
        assert {job.job_id for job in claimed} == {job.id for job in jobs}, one


def _of_tags(jobs: Jobs) -> Demand:
    return Demand(assignee_id="w", limit=10, tags=jobs[0].tags)


async def test_a_cancelled_cancel_is_found_by_a_repeat(backend: Contract) -> None:
    async def bring() -> Jobs:
        jobs = await _three(backend)
        await backend.claim([_demand(jobs, jobs[0].id, 1)], lease_ttl_s=TTL_S)
        return jobs

    async def call(jobs: Jobs) -> object:
        return await backend.cancel_jobs(jobs[0].tags, [])

    async for one in walk(bring, call):
        jobs = one.subject
        await backend.cancel_jobs(jobs[0].tags, [])
        states = [(await backend.get_job(job.id)).state for job in jobs]
        assert sorted(states) == [JobState.CANCELLING, *[JobState.UNSCHEDULED] * 2], one
        for job in jobs:
            assert len((await backend.get_history(job.id)).transitions) <= 3, one


async def test_a_cancelled_retry_may_be_repeated(backend: Contract) -> None:
    async def bring() -> Job:
        return (await job_in(backend, JobState.DEAD_LETTER))[0]

    async def call(job: Job) -> object:
        return await apply(backend, job, Event.RETRY_NOW)

    async for one in walk(bring, call):
        # What waits for its next attempt may be told to go on too, so this is no error.
        assert (await apply(backend, one.subject, Event.RETRY_NOW)).error is None, one
        assert (await backend.get_job(one.subject.id)).state is JobState.FAILED_RETRY, one
        await claim(backend, one.subject)


async def test_a_cancelled_deletion_is_found_by_a_repeat(backend: Contract) -> None:
    async def bring() -> Job:
        return (await job_in(backend, JobState.COMPLETED))[0]

    async def call(job: Job) -> int:
        return await backend.delete_jobs([], [job.id])

    async for one in walk(bring, call):
        assert await backend.delete_jobs([], [one.subject.id]) in (0, 1), one
        with pytest.raises(JobNotFound):
            await backend.get_job(one.subject.id)
