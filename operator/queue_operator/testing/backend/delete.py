"""DeleteJobs."""

from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.breaking import (
    in_a_cancelled_task,
    needs_the_store,
    whole_or_not_at_all,
)
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, job_in, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import TERMINAL


async def _left(backend: Contract, jobs: list[Job]) -> list[str]:
    found = []
    for job in jobs:
        try:
            found.append((await backend.get_job(job.id)).id)
        except JobNotFound:
            continue
    return found


@proves(
    "backend-api.DeleteJobs.pre.1",
    "backend-api.DeleteJobs.error.3",
    "backend-api.DeleteJobs.must.3",
)
async def test_delete_jobs_cancelled(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.STOPPED)
    await in_a_cancelled_task(lambda: backend.delete_jobs([], [job.id]))

    async def bring() -> list[Job]:
        return [(await job_in(backend, JobState.UNSCHEDULED))[0] for _ in range(2)]

    async def count(jobs: list[Job]) -> int:
        return len(await _left(backend, jobs))

    await whole_or_not_at_all(
        bring, lambda jobs: backend.delete_jobs([], [job.id for job in jobs]), count
    )


@proves("backend-api.DeleteJobs.pre.2", "backend-api.DeleteJobs.pre.3")
async def test_delete_jobs_by_tags_or_by_ids(backend: Contract) -> None:
    tagged = [await submitted(backend, tags=frozenset({"a", f"n={n}"})) for n in range(3)]
    kept = await submitted(backend)
    await backend.cancel_jobs(["a"], [])
    assert await backend.delete_jobs(["a", "n=1"], []) == 1
    assert await backend.delete_jobs([], [tagged[0].id]) == 1
    assert await backend.delete_jobs(["a"], []) == 1
    assert await _left(backend, [*tagged, kept]) == [kept.id]


@proves("backend-api.DeleteJobs.pre.2", "backend-api.DeleteJobs.pre.3")
@pytest.mark.parametrize(
    ("field", "tags", "job_ids"),
    [
        ("tags", "tag", ["a"]),
        ("tags", None, ["a"]),
        ("tags", [""], ["a"]),
        ("job_ids", ["tag"], "a"),
        ("job_ids", ["tag"], None),
        ("job_ids", [], [""]),
        ("job_ids", [], [7]),
    ],
)
async def test_delete_jobs_with_a_bad_selection(
    backend: Contract, field: str, tags: Any, job_ids: Any
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.delete_jobs(tags, job_ids)
    assert raised.value.field == field


@proves("backend-api.DeleteJobs.pre.4")
async def test_delete_jobs_of_nothing_is_refused(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.COMPLETED)
    with pytest.raises(InvalidArgument):
        await backend.delete_jobs([], [])
    assert await _left(backend, [job]) == [job.id]


@proves(
    "backend-api.DeleteJobs.post.1",
    "backend-api.DeleteJobs.post.2",
    "backend-api.DeleteJobs.post.3",
    "backend-api.DeleteJobs.effect.1",
    "backend-api.DeleteJobs.effect.2",
)
async def test_delete_jobs_deletes_every_ended_job(backend: Contract) -> None:
    jobs = [(await job_in(backend, state))[0] for state in TERMINAL]
    kept = await submitted(backend)
    assert await backend.delete_jobs([], [job.id for job in jobs]) == len(jobs)
    assert await _left(backend, jobs) == []
    stats = await backend.get_job_stats([])
    assert (stats.total_jobs, stats.pending_jobs) == (1, 1)
    assert (await backend.get_job(kept.id)).state is JobState.INITIAL_PENDING


@proves(
    "backend-api.DeleteJobs.post.4",
    "backend-api.DeleteJobs.post.5",
    "backend-api.DeleteJobs.error.1",
    "backend-api.DeleteJobs.must.2",
    "backend-api.DeleteJobs.must.4",
)
@pytest.mark.parametrize("state", sorted(set(JobState) - set(TERMINAL)))
async def test_delete_jobs_with_a_live_one_deletes_none(backend: Contract, state: JobState) -> None:
    ended, _ = await job_in(backend, JobState.COMPLETED)
    live, _ = await job_in(backend, state)
    before = await backend.get_job(ended.id), await backend.get_job(live.id)
    with pytest.raises(InvalidTransition) as raised:
        await backend.delete_jobs([], [ended.id, live.id])
    assert (raised.value.job_id, raised.value.state) == (live.id, state)
    assert (await backend.get_job(ended.id), await backend.get_job(live.id)) == before


@proves("backend-api.DeleteJobs.post.6", "backend-api.DeleteJobs.error.2")
async def test_delete_jobs_without_the_store(backend: Contract, store: Store) -> None:
    job, _ = await job_in(backend, JobState.COMPLETED)
    await needs_the_store(store, backend, lambda: backend.delete_jobs([], [job.id]))
    assert await _left(backend, [job]) == [job.id]


@proves("backend-api.DeleteJobs.expect.1", "backend-api.DeleteJobs.must.1")
async def test_delete_jobs_deletes_the_union(backend: Contract) -> None:
    tagged = [await submitted(backend, tags=frozenset({"a", "b"})) for _ in range(2)]
    half = await submitted(backend, tags=frozenset({"a"}))
    named = await submitted(backend)
    elsewhere = await submitted(backend, tags=frozenset({"a", "b"}), namespace="other")
    await backend.cancel_jobs(["a"], [named.id])
    await backend.cancel_jobs([], [elsewhere.id], namespace="other")
    ids = [named.id, tagged[0].id, named.id, "missing"]
    assert await backend.delete_jobs(["b", "a"], ids) == 3
    assert await _left(backend, [*tagged, half, named]) == [half.id]
    assert (await backend.get_job_stats([], namespace="other")).total_jobs == 1


@proves("backend-api.DeleteJobs.expect.2")
async def test_delete_jobs_frees_the_id(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"old", token=token)
    await backend.delete_jobs([], [job.id])
    await backend.enqueue_job(job)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.result, stored.attempt) == (JobState.INITIAL_PENDING, None, 0)
    # Nothing that was said of the first job is taken for the second.
    assert (await apply(backend, job, Event.COMPLETE, token)).error is not None
