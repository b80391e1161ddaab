"""MarkWorkerUnresponsive."""

from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import in_a_cancelled_task, shape, whole_or_not_at_all
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import claim, job_in, running, submitted
from queue_operator.testing.store import Contract
from queue_operator.testing.table import SLOT_HOLDING


@proves(
    "backend-api.MarkWorkerUnresponsive.pre.1",
    "backend-api.MarkWorkerUnresponsive.error.2",
    "backend-api.MarkWorkerUnresponsive.must.2",
)
async def test_mark_worker_unresponsive_cancelled(backend: Contract) -> None:
    await running(backend)
    await in_a_cancelled_task(lambda: backend.mark_worker_unresponsive("worker-1"))

    async def bring() -> list[Job]:
        return [(await job_in(backend, state))[0] for state in SLOT_HOLDING]

    async def read(jobs: list[Job]) -> list[object]:
        return [await shape(backend, job) for job in jobs]

    await whole_or_not_at_all(bring, lambda _: backend.mark_worker_unresponsive("worker-1"), read)


@proves("backend-api.MarkWorkerUnresponsive.pre.2")
@pytest.mark.parametrize("assignee", ["", None, 7])
async def test_mark_worker_unresponsive_without_an_id(backend: Contract, assignee: Any) -> None:
    job, _ = await running(backend)
    with pytest.raises(InvalidArgument) as raised:
        await backend.mark_worker_unresponsive(assignee)
    assert raised.value.field == "assignee_id"
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


@proves(
    "backend-api.MarkWorkerUnresponsive.post.1",
    "backend-api.MarkWorkerUnresponsive.post.2",
    "backend-api.MarkWorkerUnresponsive.post.3",
    "backend-api.MarkWorkerUnresponsive.effect.1",
    "backend-api.MarkWorkerUnresponsive.must.3",
)
async def test_mark_worker_unresponsive_loses_its_jobs(backend: Contract) -> None:
    busy, _ = await running(backend)
    leaving, _ = await job_in(backend, JobState.CANCELLING)
    before = [await backend.get_job(job.id) for job in (busy, leaving)]
    await backend.mark_worker_unresponsive("worker-1")
    after = [await backend.get_job(job.id) for job in (busy, leaving)]
    assert [job.state for job in after] == [JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED]
    for first, second in zip(before, after, strict=True):
        assert (second.assignee_id, second.assigned_at) == (first.assignee_id, first.assigned_at)
    assert (after[0].finalized_at, after[1].finalized_at) == (None, after[1].updated_at)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [busy.id]


@proves(
    "backend-api.MarkWorkerUnresponsive.effect.2",
    "backend-api.FreedAssigneeIDs.rule.5",
    "backend-api.MarkWorkerUnresponsive.must.1",
)
async def test_mark_worker_unresponsive_frees_every_slot(backend: Contract) -> None:
    for state in SLOT_HOLDING * 2:
        await job_in(backend, state)
    assert await backend.mark_worker_unresponsive("worker-1") == {"worker-1": 4}
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves(
    "backend-api.MarkWorkerUnresponsive.post.5",
    "backend-api.MarkWorkerUnresponsive.error.3",
    "backend-api.MarkWorkerUnresponsive.must.4",
)
async def test_mark_worker_unresponsive_without_jobs(backend: Contract) -> None:
    job = await submitted(backend)
    before = await backend.get_job(job.id)
    assert await backend.mark_worker_unresponsive("nobody") == {}
    assert await backend.get_job(job.id) == before


@proves("backend-api.MarkWorkerUnresponsive.expect.1")
async def test_mark_worker_unresponsive_leaves_the_rest(backend: Contract) -> None:
    resting = [s for s in JobState if s not in SLOT_HOLDING]
    jobs = [(await job_in(backend, state))[0] for state in resting]
    other = await submitted(backend)
    await claim(backend, other, "worker-2")
    before = [await backend.get_job(job.id) for job in (*jobs, other)]
    # Its id is on jobs that it had long ago, too.
    assert await backend.mark_worker_unresponsive("worker-1") == {}
    assert [await backend.get_job(job.id) for job in (*jobs, other)] == before


@proves("backend-api.MarkWorkerUnresponsive.expect.2", "backend-api.MarkWorkerUnresponsive.must.1")
async def test_mark_worker_unresponsive_in_every_namespace(backend: Contract) -> None:
    jobs = []
    for namespace in ("a", "b"):
        jobs.append(await submitted(backend, namespace=namespace))
        await backend.dequeue_jobs("w", [], 1, namespace=namespace)
    assert await backend.mark_worker_unresponsive("w") == {"w": 2}
    for job in jobs:
        stored = await backend.get_job(job.id, namespace=job.namespace)
        assert stored.state is JobState.UNKNOWN_RETRY


async def test_a_token_outlives_the_loss_of_its_worker(backend: Contract) -> None:
    mine, token = await running(backend)
    assert await backend.mark_worker_unresponsive("worker-1") == {"worker-1": 1}
    # What a caller takes away does not use up an attempt.
    assert (await backend.get_job(mine.id)).attempt == 0
    assert await backend.complete_job(mine.id, b"late", token=token) == {}
    assert (await backend.get_job(mine.id)).result == b"late"
