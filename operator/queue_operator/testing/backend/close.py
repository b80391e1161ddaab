"""Close."""

import pytest

from queue_operator.domain.errors import Unavailable
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, running, submitted
from queue_operator.testing.store import Contract, Store


@proves("backend-api.Close.pre.1")
async def test_close_of_a_backend_that_was_never_used(backend: Contract) -> None:
    await backend.close()


@proves("backend-api.Close.post.1", "backend-api.Close.post.3", "backend-api.Close.effect.1")
async def test_close_makes_every_call_unavailable(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.close()
    calls = [
        backend.ping(),
        backend.enqueue_job(a_job()),
        backend.enqueue_jobs([a_job()]),
        backend.dequeue_jobs("w", [], 1),
        backend.complete_job(job.id, b"", token=token),
        backend.cancel_jobs([], [job.id]),
        backend.mark_worker_unresponsive("worker-1"),
        backend.get_job(job.id),
        backend.get_job_stats([]),
        backend.delete_jobs([], [job.id]),
    ]
    for call in calls:
        with pytest.raises(Unavailable, match="was closed"):
            await call


@proves("backend-api.Close.post.4")
async def test_close_twice(backend: Contract) -> None:
    await submitted(backend)
    await backend.close()
    await backend.close()


@proves("backend-api.Close.post.2", "backend-api.Close.effect.2", "backend-api.Close.must.2")
async def test_close_leaves_the_store_to_others(store: Store) -> None:
    closed, other = await store.open(), await store.open()
    job, token = await running(closed)
    await closed.close()
    assert (await other.get_job(job.id)).state is JobState.RUNNING
    await other.complete_job(job.id, b"", token=token)
    assert (await (await store.open()).get_job(job.id)).state is JobState.COMPLETED


@proves("backend-api.Close.error.1", "backend-api.Close.post.2", "backend-api.Close.must.2")
async def test_close_while_the_store_is_down(store: Store) -> None:
    backend = await store.open()
    job = await submitted(backend)
    await store.break_down()
    await backend.close()
    await store.mend()
    assert (await (await store.open()).get_job(job.id)).id == job.id
