"""CleanupExpiredJobs and ResetRunningJobs."""

from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import (
    in_a_cancelled_task,
    needs_the_store,
    shape,
    whole_or_not_at_all,
)
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import job_in, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import SLOT_HOLDING

_DAY_S = 86_400.0


async def _exists(backend: Contract, job: Job) -> bool:
    try:
        await backend.get_job(job.id, namespace=job.namespace)
    except JobNotFound:
        return False
    return True


# CleanupExpiredJobs


@proves("backend-api.CleanupExpiredJobs.pre.1", "backend-api.CleanupExpiredJobs.error.3")
async def test_cleanup_expired_jobs_cancelled(backend: Contract, store: Store) -> None:
    await in_a_cancelled_task(lambda: backend.cleanup_expired_jobs(1.0))

    async def bring() -> list[Job]:
        jobs = [(await job_in(backend, JobState.COMPLETED))[0] for _ in range(2)]
        await store.age(_DAY_S)
        return jobs

    async def left(jobs: list[Job]) -> int:
        return sum([await _exists(backend, job) for job in jobs])

    await whole_or_not_at_all(bring, lambda _: backend.cleanup_expired_jobs(1.0), left)


@proves("backend-api.CleanupExpiredJobs.pre.2", "backend-api.CleanupExpiredJobs.error.1")
@pytest.mark.parametrize("ttl", [0, -1, -0.5, float("nan"), float("-inf"), None, "1", True])
async def test_cleanup_expired_jobs_with_a_bad_ttl(
    backend: Contract, store: Store, ttl: Any
) -> None:
    job, _ = await job_in(backend, JobState.COMPLETED)
    await store.age(_DAY_S)
    with pytest.raises(InvalidArgument) as raised:
        await backend.cleanup_expired_jobs(ttl)
    assert raised.value.field == "ttl_s"
    assert await _exists(backend, job)


@proves(
    "backend-api.CleanupExpiredJobs.post.1",
    "backend-api.CleanupExpiredJobs.effect.1",
    "backend-api.CleanupExpiredJobs.effect.2",
    "backend-api.CleanupExpiredJobs.must.1",
    "backend-api.CleanupExpiredJobs.must.2",
)
async def test_cleanup_expired_jobs_deletes_by_the_time_of_the_end(
    backend: Contract, store: Store
) -> None:
    # Both were made long ago, and one of them ended just now.
    old, late = [(await running(backend))[0] for _ in range(2)]
    await backend.complete_job(old.id, b"")
    await store.age(100)
    await backend.complete_job(late.id, b"")
    assert await backend.cleanup_expired_jobs(1000) == 0
    assert await backend.cleanup_expired_jobs(50) == 1
    assert not await _exists(backend, old)
    assert await _exists(backend, late)
    stats = await backend.get_job_stats([])
    assert (stats.total_jobs, stats.completed_jobs) == (1, 1)
    assert await backend.cleanup_expired_jobs(50) == 0


@proves("backend-api.CleanupExpiredJobs.expect.1", "backend-api.CleanupExpiredJobs.must.1")
async def test_cleanup_expired_jobs_leaves_every_other_state(
    backend: Contract, store: Store
) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    await store.age(10 * _DAY_S)
    assert await backend.cleanup_expired_jobs(_DAY_S) == 1
    assert not await _exists(backend, jobs.pop(JobState.COMPLETED))
    for state, job in jobs.items():
        assert (await backend.get_job(job.id)).state is state


async def test_cleanup_expired_jobs_of_one_namespace(backend: Contract, store: Store) -> None:
    for namespace in ("a", "b"):
        job = await submitted(backend, namespace=namespace)
        await backend.dequeue_jobs("w", [], 1, namespace=namespace)
        await backend.complete_job(job.id, b"", namespace=namespace)
    await store.age(_DAY_S)
    assert await backend.cleanup_expired_jobs(1.0, namespace="nowhere") == 0
    assert await backend.cleanup_expired_jobs(1.0, namespace="a") == 1
    assert (await backend.get_job_stats([], namespace="b")).total_jobs == 1
    assert await backend.cleanup_expired_jobs(1.0) == 1


@proves(
    "backend-api.CleanupExpiredJobs.post.2",
    "backend-api.CleanupExpiredJobs.error.2",
    "backend-api.ResetRunningJobs.post.3",
    "backend-api.ResetRunningJobs.error.1",
)
async def test_cleanup_and_reset_without_the_store(backend: Contract, store: Store) -> None:
    done, _ = await job_in(backend, JobState.COMPLETED)
    await store.age(_DAY_S)
    live, _ = await running(backend)
    await needs_the_store(
        store,
        backend,
        lambda: backend.cleanup_expired_jobs(1.0),
        backend.reset_running_jobs,
    )
    assert await _exists(backend, done)
    assert (await backend.get_job(live.id)).state is JobState.RUNNING


# ResetRunningJobs


@proves(
    "backend-api.ResetRunningJobs.pre.1",
    "backend-api.ResetRunningJobs.error.2",
    "backend-api.ResetRunningJobs.must.2",
)
async def test_reset_running_jobs_cancelled(backend: Contract) -> None:
    await running(backend)
    await in_a_cancelled_task(backend.reset_running_jobs)

    async def bring() -> list[Job]:
        return [(await job_in(backend, state))[0] for state in SLOT_HOLDING]

    async def read(jobs: list[Job]) -> list[object]:
        return [await shape(backend, job) for job in jobs]

    await whole_or_not_at_all(bring, lambda _: backend.reset_running_jobs(), read)


@proves(
    "backend-api.ResetRunningJobs.post.1",
    "backend-api.ResetRunningJobs.post.2",
    "backend-api.ResetRunningJobs.effect.1",
    "backend-api.ResetRunningJobs.effect.2",
    "backend-api.ResetRunningJobs.must.3",
)
async def test_reset_running_jobs_loses_what_is_running(backend: Contract) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    before = {state: await backend.get_job(job.id) for state, job in jobs.items()}
    assert await backend.reset_running_jobs() == {"worker-1": 2}
    expected = {
        **{state: state for state in JobState},
        JobState.RUNNING: JobState.UNKNOWN_RETRY,
        JobState.CANCELLING: JobState.UNKNOWN_STOPPED,
    }
    for state, job in jobs.items():
        stored = await backend.get_job(job.id)
        assert stored.state is expected[state]
        assert stored.assignee_id == before[state].assignee_id
        assert stored.assigned_at == before[state].assigned_at
        if state in SLOT_HOLDING:
            # What a caller takes away does not use up an attempt.
            assert stored.attempt == 0
    taken = await backend.dequeue_jobs("w", [], 50)
    assert jobs[JobState.RUNNING].id in {job.id for job in taken}


@proves(
    "backend-api.ResetRunningJobs.post.4",
    "backend-api.ResetRunningJobs.error.3",
    "backend-api.ResetRunningJobs.must.4",
)
async def test_reset_running_jobs_with_none(backend: Contract) -> None:
    assert await backend.reset_running_jobs() == {}
    job = await submitted(backend)
    before = await backend.get_job(job.id)
    assert await backend.reset_running_jobs() == {}
    assert await backend.get_job(job.id) == before


@proves(
    "backend-api.ResetRunningJobs.expect.1",
    "backend-api.FreedAssigneeIDs.rule.5",
    "backend-api.ResetRunningJobs.must.1",
)
async def test_reset_running_jobs_of_one_namespace(backend: Contract) -> None:
    for namespace in ("a", "b"):
        for _ in range(3):
            await submitted(backend, namespace=namespace)
        await backend.dequeue_jobs("w-1", [], 2, namespace=namespace)
        await backend.dequeue_jobs("w-2", [], 1, namespace=namespace)
    assert await backend.reset_running_jobs(namespace="a") == {"w-1": 2, "w-2": 1}
    assert await backend.reset_running_jobs(namespace="nowhere") == {}
    assert await backend.reset_running_jobs() == {"w-1": 2, "w-2": 1}
