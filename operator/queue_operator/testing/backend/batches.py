"""EnqueueJobs, and a batch with an answer per job."""

import asyncio
from typing import Any

import pytest

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import cancelled_anywhere, in_a_cancelled_task
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, submitted
from queue_operator.testing.store import Contract, Store


async def _ids(backend: Contract, jobs: list[Job]) -> list[str]:
    """Ids of those that are stored."""
    found = []
    for job in jobs:
        try:
            found.append((await backend.get_job(job.id, namespace=job.namespace)).id)
        except JobNotFound:
            continue
    return found


@proves("backend-api.EnqueueJobs.pre.1", "backend-api.EnqueueJobs.error.3")
async def test_enqueue_jobs_cancelled(backend: Contract) -> None:
    await in_a_cancelled_task(lambda: backend.enqueue_jobs([a_job(), a_job()]))

    async def bring() -> list[Job]:
        return [a_job() for _ in range(20)]

    async def count(jobs: list[Job]) -> int:
        return len(await _ids(backend, jobs))

    await cancelled_anywhere(bring, backend.enqueue_jobs, count)


@proves("backend-api.EnqueueJobs.pre.2")
async def test_enqueue_jobs_of_none(backend: Contract) -> None:
    assert await backend.enqueue_jobs([]) == []
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.EnqueueJobs.pre.3")
@pytest.mark.parametrize("thing", [None, "job", {"id": "a", "type": "t"}])
async def test_enqueue_jobs_with_what_is_no_job(backend: Contract, thing: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs([a_job(), thing])
    assert raised.value.field == "jobs[1].job"
    assert (await backend.get_job_stats([])).total_jobs == 0


@pytest.mark.parametrize("thing", [None, "jobs", b"jobs", 7])
async def test_enqueue_jobs_of_what_is_no_batch(backend: Contract, thing: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs(thing)
    assert raised.value.field == "jobs"


@proves("backend-api.EnqueueJobs.pre.4")
async def test_enqueue_jobs_without_an_id_or_with_one_twice(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as empty:
        await backend.enqueue_jobs([a_job(), a_job(), a_job(id="")])
    assert empty.value.field == "jobs[2].id"
    job, other = a_job(), a_job()
    with pytest.raises(DuplicateJob) as twice:
        await backend.enqueue_jobs([job, other, job, a_job(), other])
    assert (twice.value.indexes, twice.value.job_ids) == ((2, 4), (job.id, other.id))
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves("backend-api.EnqueueJobs.pre.5")
@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.INITIAL_PENDING}))
async def test_enqueue_jobs_in_another_state(backend: Contract, state: JobState) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs([a_job(), a_job(state=state)])
    assert raised.value.field == "jobs[1].state"
    assert (await backend.get_job_stats([])).total_jobs == 0


@proves(
    "backend-api.EnqueueJobs.pre.6",
    "backend-api.EnqueueJobs.post.4",
    "backend-api.EnqueueJobs.post.5",
    "backend-api.EnqueueJobs.error.4",
)
async def test_enqueue_jobs_with_ids_that_exist(backend: Contract) -> None:
    first, second = await submitted(backend), await submitted(backend)
    before = [await backend.get_job(job.id) for job in (first, second)]
    new = [a_job() for _ in range(3)]
    with pytest.raises(DuplicateJob) as raised:
        await backend.enqueue_jobs([new[0], second, new[1], first, new[2]])
    assert (raised.value.indexes, raised.value.job_ids) == ((1, 3), (second.id, first.id))
    assert await _ids(backend, new) == []
    assert [await backend.get_job(job.id) for job in (first, second)] == before
    assert (await backend.get_job_stats([])).total_jobs == 2


@proves("backend-api.EnqueueJobs.post.1", "backend-api.EnqueueJobs.post.2")
async def test_enqueue_jobs_gives_the_ids_in_order(backend: Contract) -> None:
    jobs = [a_job(payload=str(n).encode()) for n in range(1500)]
    jobs.reverse()
    assert await backend.enqueue_jobs(jobs) == [job.id for job in jobs]
    assert (await backend.get_job(jobs[1234].id)).payload == jobs[1234].payload
    stats = await backend.get_job_stats([])
    assert (stats.total_jobs, stats.pending_jobs) == (1500, 1500)


@proves(
    "backend-api.EnqueueJobs.post.3",
    "backend-api.EnqueueJobs.effect.1",
    "backend-api.EnqueueJobs.effect.2",
)
async def test_enqueue_jobs_makes_all_visible_at_once(backend: Contract) -> None:
    jobs = [a_job(tags=frozenset({"all", f"n={n}"})) for n in range(7)]
    await backend.enqueue_jobs(jobs)
    assert await _ids(backend, jobs) == [job.id for job in jobs]
    assert (await backend.get_job_stats(["all"])).pending_jobs == 7
    assert [job.id for job in await backend.dequeue_jobs("w", ["n=3"], 9)] == [jobs[3].id]
    assert len(await backend.dequeue_jobs("w", ["all"], 9)) == 6


@proves("backend-api.EnqueueJobs.error.1", "backend-api.Invariants.rule.2")
@pytest.mark.parametrize("place", [0, 9, 19])
async def test_enqueue_jobs_with_one_bad_job(backend: Contract, place: int) -> None:
    jobs = [a_job(type="" if n == place else "t") for n in range(20)]
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs(jobs)
    assert raised.value.field == f"jobs[{place}].type"
    assert await _ids(backend, jobs) == []


@proves("backend-api.EnqueueJobs.expect.1")
async def test_enqueue_jobs_by_racing_callers_with_an_id_in_common(store: Store) -> None:
    replicas = [await store.open() for _ in range(4)]
    batches = [[*(a_job() for _ in range(9)), a_job(id="common")] for _ in range(12)]
    # The common one is at the head of every second batch, for locks are taken in some order.
    for batch in batches[::2]:
        batch.reverse()
    tries = [replicas[n % 4].enqueue_jobs(batch) for n, batch in enumerate(batches)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    [winner] = [n for n, answer in enumerate(answers) if isinstance(answer, list)]
    assert all(isinstance(a, DuplicateJob) for n, a in enumerate(answers) if n != winner)
    assert (await replicas[0].get_job_stats([])).total_jobs == 10
    assert len(await _ids(replicas[0], batches[winner])) == 10


async def test_submit_not_atomic_answers_each_job(backend: Contract) -> None:
    taken = await submitted(backend)
    jobs = [a_job(), a_job(type=""), taken, a_job(), a_job(depends_on=("nobody",))]
    answers = await backend.submit(jobs, atomic=False)
    assert [answer.job_id for answer in answers] == [job.id for job in jobs]
    errors = [answer.error for answer in answers]
    assert [errors[0], errors[3]] == [None, None]
    assert isinstance(errors[1], InvalidArgument)
    assert errors[1].field == "jobs[1].type"
    assert isinstance(errors[2], DuplicateJob)
    assert isinstance(errors[4], InvalidArgument)
    assert errors[4].field == "jobs[4].depends_on[0]"
    assert await _ids(backend, [jobs[0], jobs[1], jobs[3], jobs[4]]) == [jobs[0].id, jobs[3].id]
    assert (await backend.get_job_stats([])).total_jobs == 3
