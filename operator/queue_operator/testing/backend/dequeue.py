"""DequeueJobs."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import in_a_cancelled_task
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, job_in, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import ELIGIBLE

_EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)


def _at(minutes: float, **fields: object) -> Job:
    return a_job(created_at=_EPOCH + timedelta(minutes=minutes), **fields)


@proves(
    "backend-api.DequeueJobs.pre.1",
    "backend-api.DequeueJobs.error.2",
    "backend-api.DequeueJobs.must.3",
    "backend-api.DequeueJobs.must.10",
)
async def test_dequeue_jobs_in_a_cancelled_task(backend: Contract) -> None:
    await submitted(backend, tags=frozenset({"first"}))
    await in_a_cancelled_task(lambda: backend.dequeue_jobs("w", ["first"], 1))


@proves("backend-api.DequeueJobs.pre.2")
@pytest.mark.parametrize("assignee", ["", None, 7])
async def test_dequeue_jobs_without_an_assignee(backend: Contract, assignee: Any) -> None:
    job = await submitted(backend)
    with pytest.raises(InvalidArgument) as raised:
        await backend.dequeue_jobs(assignee, [], 1)
    assert raised.value.field == "assignee_id"
    assert (await backend.get_job(job.id)).state is JobState.INITIAL_PENDING


@proves("backend-api.DequeueJobs.pre.3")
@pytest.mark.parametrize("limit", [0, -1, 1.0, True, None, 10**9])
async def test_dequeue_jobs_with_a_bad_limit(backend: Contract, limit: Any) -> None:
    job = await submitted(backend)
    with pytest.raises(InvalidArgument) as raised:
        await backend.dequeue_jobs("w", [], limit)
    assert raised.value.field == "limit"
    assert (await backend.get_job(job.id)).state is JobState.INITIAL_PENDING


@proves(
    "backend-api.DequeueJobs.pre.4",
    "backend-api.DequeueJobs.post.7",
    "backend-api.DequeueJobs.must.2",
    "backend-api.TestingRequirements.must.9",
)
async def test_dequeue_jobs_without_tags_takes_every_job(backend: Contract) -> None:
    jobs = [await submitted(backend, tags=frozenset(tags)) for tags in ([], ["a"], ["a", "b"])]
    dequeued = await backend.dequeue_jobs("w", [], 5)
    assert {job.id for job in dequeued} == {job.id for job in jobs}


@proves("backend-api.DequeueJobs.pre.4")
@pytest.mark.parametrize("tags", ["tag", None, [""], [7], [None]])
async def test_dequeue_jobs_with_bad_tags(backend: Contract, tags: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.dequeue_jobs("w", tags, 1)
    assert raised.value.field == "tags"


@proves(
    "backend-api.DequeueJobs.post.1",
    "backend-api.DequeueJobs.error.3",
    "backend-api.DequeueJobs.expect.2",
    "backend-api.DequeueJobs.must.1",
)
async def test_dequeue_jobs_with_nothing_eligible(backend: Contract) -> None:
    assert await backend.dequeue_jobs("w", [], 5) == []
    for state in sorted(set(JobState) - set(ELIGIBLE)):
        await job_in(backend, state)
    assert await backend.dequeue_jobs("w", [], 50) == []


@proves(
    "backend-api.DequeueJobs.post.2",
    "backend-api.DequeueJobs.post.3",
    "backend-api.DequeueJobs.post.4",
    "backend-api.DequeueJobs.post.11",
    "backend-api.DequeueJobs.must.3",
)
async def test_dequeue_jobs_assigns_what_it_gives(backend: Contract) -> None:
    job = await submitted(backend, payload=b"x", tags=frozenset({"a"}))
    created = (await backend.get_job(job.id)).created_at
    [dequeued] = await backend.dequeue_jobs("worker-7", [], 5)
    # But for the token: who reads a job is not who runs it.
    assert replace(dequeued, token="") == await backend.get_job(job.id)
    assert (dequeued.state, dequeued.assignee_id) == (JobState.RUNNING, "worker-7")
    assert (dequeued.attempt, dequeued.payload, dequeued.tags) == (1, b"x", frozenset({"a"}))
    assert created is not None
    assert dequeued.assigned_at is not None
    # The clock of the store, for both.
    assert timedelta(0) <= dequeued.assigned_at - created < timedelta(minutes=1)


@proves("backend-api.DequeueJobs.post.5", "backend-api.DequeueJobs.post.4")
async def test_dequeue_jobs_sets_started_at_once(backend: Contract) -> None:
    job = await submitted(backend)
    [first] = await backend.dequeue_jobs("w1", [], 1)
    assert first.started_at == first.assigned_at is not None
    await backend.fail_job(job.id, "boom")
    [second] = await backend.dequeue_jobs("w2", [], 1)
    assert second.started_at == first.started_at
    assert second.assigned_at is not None
    assert second.assigned_at > first.assigned_at
    assert (second.assignee_id, second.attempt, second.lease_version) == ("w2", 2, 2)


@proves(
    "backend-api.DequeueJobs.post.6",
    "backend-api.Invariants.rule.4",
    "backend-api.DequeueJobs.must.2",
    "backend-api.TestingRequirements.must.9",
)
async def test_dequeue_jobs_takes_only_jobs_with_all_tags(backend: Contract) -> None:
    both = await submitted(backend, tags=frozenset({"a", "b", "c"}))
    await submitted(backend, tags=frozenset({"a"}))
    await submitted(backend)
    await submitted(backend, tags=frozenset({"A", "B"}))
    jobs = await backend.dequeue_jobs("w", ["b", "a"], 10)
    assert [job.id for job in jobs] == [both.id]
    assert await backend.dequeue_jobs("w", ["a", "b", "a"], 10) == []
    assert len(await backend.dequeue_jobs("w", [], 10)) == 3


@proves(
    "backend-api.DequeueJobs.post.8",
    "backend-api.Invariants.rule.9",
    "backend-api.DequeueJobs.must.6",
    "backend-api.TestingRequirements.must.10",
)
async def test_dequeue_jobs_takes_the_oldest_first(backend: Contract) -> None:
    jobs = [_at(minutes) for minutes in (5, 1, 4, 2, 3)]
    await backend.enqueue_jobs(jobs)
    taken = [(await backend.dequeue_jobs("w", [], 1))[0].id for _ in jobs]
    assert taken == [job.id for job in sorted(jobs, key=lambda job: job.created_at or _EPOCH)]


@proves(
    "backend-api.DequeueJobs.post.8",
    "backend-api.DequeueJobs.post.9",
    "backend-api.DequeueJobs.must.6",
    "backend-api.TestingRequirements.must.10",
)
async def test_dequeue_jobs_selects_by_the_time_of_the_last_retry(backend: Contract) -> None:
    retried, *others = [_at(minutes) for minutes in range(6)]
    await backend.enqueue_jobs([retried, *others])
    await backend.dequeue_jobs("w", [], 1)
    await backend.fail_job(retried.id, "boom")
    # Which three is by age; in what order the answer lists them is not.
    dequeued = await backend.dequeue_jobs("w", [], 3)
    assert {job.id for job in dequeued} == {job.id for job in others[:3]}
    last = await backend.dequeue_jobs("w", [], 2)
    assert {job.id for job in last} == {job.id for job in others[3:]}
    assert [job.id for job in await backend.dequeue_jobs("w", [], 2)] == [retried.id]


@proves(
    "backend-api.DequeueJobs.post.10",
    "backend-api.DequeueJobs.expect.3",
    "backend-api.DequeueJobs.must.5",
    "backend-api.DequeueJobs.must.12",
)
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_dequeue_jobs_gives_at_most_its_limit(backend: Contract, limit: int) -> None:
    await backend.enqueue_jobs([a_job() for _ in range(7)])
    assert len(await backend.dequeue_jobs("w", [], limit)) == min(limit, 7)
    stats = await backend.get_job_stats([])
    assert (stats.running_jobs, stats.pending_jobs) == (min(limit, 7), 7 - min(limit, 7))


@proves(
    "backend-api.DequeueJobs.effect.1",
    "backend-api.Invariants.rule.5",
    "backend-api.DequeueJobs.must.1",
)
@pytest.mark.parametrize("state", ELIGIBLE)
async def test_dequeue_jobs_takes_each_eligible_state(backend: Contract, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    [dequeued] = await backend.dequeue_jobs("worker-9", [], 5)
    assert (dequeued.id, dequeued.state, dequeued.assignee_id) == (
        job.id,
        JobState.RUNNING,
        "worker-9",
    )


@proves(
    "backend-api.DequeueJobs.effect.2",
    "backend-api.DequeueJobs.effect.3",
    "backend-api.Invariants.rule.6",
)
async def test_dequeue_jobs_gives_a_job_to_one_assignee(backend: Contract) -> None:
    job = await submitted(backend)
    await backend.dequeue_jobs("w1", [], 1)
    assert await backend.dequeue_jobs("w2", [], 1) == []
    assert await backend.dequeue_jobs("w1", [], 1) == []
    assert (await backend.get_job(job.id)).assignee_id == "w1"
    await backend.fail_job(job.id, "boom")
    assert [again.id for again in await backend.dequeue_jobs("w2", [], 1)] == [job.id]
    assert (await backend.get_job(job.id)).assignee_id == "w2"


@proves(
    "backend-api.DequeueJobs.expect.1",
    "backend-api.Invariants.rule.1",
    "backend-api.Invariants.rule.6",
    "backend-api.DequeueJobs.must.4",
    "backend-api.DequeueJobs.must.7",
)
async def test_dequeue_jobs_by_many_at_once_never_share_a_job(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    jobs = [a_job(type=f"t{n % 3}") for n in range(400)]
    await backends[0].enqueue_jobs(jobs)
    taken: list[str] = []

    async def work(backend: Contract, name: str) -> None:
        # A claim may come back short while others hold rows, but not for ever.
        for _ in range(60):
            taken.extend(job.id for job in await backend.dequeue_jobs(name, [], 9))

    await asyncio.gather(*(work(b, f"w{n}-{m}") for n, b in enumerate(backends) for m in range(2)))
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert (await backends[0].get_job_stats([])).running_jobs == 400
