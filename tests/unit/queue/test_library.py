"""StreamJobs as its callers in this process meet it."""

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator

import pytest
from tests.waiting import DEADLINE_S, take_jobs

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.domain.errors import InvalidArgument, StaleLease, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import Limits
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves
from queue_operator.testing.walking import walk


@pytest.fixture
def shelf() -> MemoryShelf:
    return MemoryShelf()


@pytest.fixture
async def queue(shelf: MemoryShelf) -> AsyncIterator[QueueService]:
    queue = QueueService(MemoryBackend(shelf), QueueSettings(lease_ttl_s=0.2))
    await queue.start()
    yield queue
    shelf.reachable = True
    await queue.close()


async def submit(queue: QueueService, count: int = 1) -> list[str]:
    return await queue.enqueue_jobs([Job(id=uuid.uuid4().hex, type="mail") for _ in range(count)])


async def until_assigned(queue: QueueService, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while sum(usage.busy for usage in queue.usage()) < count:
            await queue.ping()


async def states(queue: QueueService, ids: list[str]) -> set[JobState]:
    return {(await queue.get_job(job_id)).state for job_id in ids}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("", [], 1), "assignee_id"),
        (("w" * 256, [], 1), "assignee_id"),
        (("w", ["\x00"], 1), "tags"),
        (("w", [], 0), "max_assigned_jobs"),
        (("w", [], 10**9), "max_assigned_jobs"),
        (("w", [], 1.5), "max_assigned_jobs"),
    ],
)
async def test_the_call_itself_refuses_wrong_arguments(
    queue: QueueService, arguments: tuple[str, list[str], int], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        queue.stream_jobs(*arguments)
    assert caught.value.field == field


async def test_nothing_is_asked_for_before_the_first_step(queue: QueueService) -> None:
    [job_id] = await submit(queue)
    idle, other = queue.stream_jobs("idle", [], 5), queue.stream_jobs("other", [], 5)
    assert queue.usage() == []
    async with other:
        assert [job.id for job in await take_jobs(other, 1)] == [job_id]
    await idle.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(idle)


async def test_async_with_asks_at_once_and_gives_back_at_its_end(queue: QueueService) -> None:
    ids = await submit(queue, 2)
    async with queue.stream_jobs("w", [], 5):
        await until_assigned(queue, 2)
    assert await states(queue, ids) == {JobState.FAILED_RETRY}


async def test_a_cancelled_step_neither_ends_the_stream_nor_loses_a_batch(
    queue: QueueService,
) -> None:
    async with queue.stream_jobs("w", [], 50) as stream:
        seen: list[str] = []
        for _ in range(40):
            step = asyncio.ensure_future(anext(stream))
            await asyncio.wait([step], timeout=0)
            await submit(queue)
            step.cancel()
            await asyncio.wait([step])
            if not step.cancelled():
                seen += [job.id for job in step.result()]
        seen += [job.id for job in await take_jobs(stream, 40 - len(seen))]
        assert len(set(seen)) == 40


async def test_a_step_cancelled_anywhere_is_told_of_its_batch_or_leaves_it(
    queue: QueueService,
) -> None:
    async with queue.stream_jobs("w", [], 1000) as stream:

        async def bring() -> str:
            [job_id] = await submit(queue)
            return job_id

        async def call(_: str) -> list[str]:
            return [job.id for job in await anext(stream)]

        calls = [one async for one in walk(bring, call)]
        told = [job_id for one in calls for answer in one.answers for job_id in answer]
        told += [job.id for job in await take_jobs(stream, len(calls) - len(told))]
        assert sorted(told) == sorted(one.subject for one in calls)


async def test_a_step_that_runs_into_a_timeout_can_be_taken_again(queue: QueueService) -> None:
    async with queue.stream_jobs("w", [], 5) as stream:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0)
        ids = await submit(queue)
        assert [job.id for job in await take_jobs(stream, 1)] == ids


async def test_jobs_carry_what_is_known_of_earlier_attempts(queue: QueueService) -> None:
    [job_id] = await submit(queue)
    async with queue.stream_jobs("w", [], 1) as stream:
        [first] = await take_jobs(stream, 1)
        await queue.fail_job(job_id, "not today", token=first.token)
        [again] = await take_jobs(stream, 1)
        stored = await queue.get_job(job_id)
    assert (first.retry_count, first.last_retry_at) == (0, None)
    assert first.started_at == first.assigned_at
    assert (again.retry_count, again.last_retry_at) == (1, stored.last_retry_at)
    assert again.last_retry_at is not None
    assert (again.started_at, again.attempt) == (first.started_at, 2)


async def test_the_token_fences_an_outcome(queue: QueueService) -> None:
    [job_id] = await submit(queue)
    async with queue.stream_jobs("w", [], 1) as stream:
        [first] = await take_jobs(stream, 1)
        await queue.mark_worker_unresponsive("w")
        [again] = await take_jobs(stream, 1)
        with pytest.raises(StaleLease):
            await queue.complete_job(job_id, b"old", token=first.token)
        await queue.complete_job(job_id, b"new", token=again.token)
    assert (await queue.get_job(job_id)).result == b"new"


async def test_a_stream_that_a_loop_left_gives_back_what_it_holds(queue: QueueService) -> None:
    await submit(queue)

    async def take_one() -> None:
        async for _ in queue.stream_jobs("w", [], 5):
            await submit(queue, 2)
            await until_assigned(queue, 3)
            break

    await take_one()
    gc.collect()
    async with asyncio.timeout(DEADLINE_S):
        while queue.usage():
            await queue.ping()
    async with queue.stream_jobs("v", [], 5) as stream:
        assert len(await take_jobs(stream, 2)) == 2


@proves("queue-api.StreamJobsTermination.then.4")
async def test_closing_does_not_wait_for_a_store_that_is_away(
    queue: QueueService, shelf: MemoryShelf
) -> None:
    [job_id] = await submit(queue)
    stream = queue.stream_jobs("w", [], 1)
    async with stream:
        await until_assigned(queue, 1)
        shelf.reachable = False
    # What could not be stored then is stored when the store is back.
    shelf.reachable = True
    async with queue.stream_jobs("v", [], 1) as other:
        assert [job.id for job in await take_jobs(other, 1)] == [job_id]


async def test_a_queue_that_is_closed_gives_no_streams(queue: QueueService) -> None:
    before = queue.stream_jobs("w", [], 1)
    await queue.close()
    with pytest.raises(Unavailable):
        queue.stream_jobs("w", [], 1)
    with pytest.raises(Unavailable):
        await anext(before)


async def test_an_error_ends_the_stream_that_it_is_about_and_no_other() -> None:
    """The store takes fewer tags than the queue was told."""
    queue = QueueService(MemoryBackend(limits=Limits(tags=1)), QueueSettings(lease_ttl_s=3600))
    await queue.start()
    healthy, wrong = queue.stream_jobs("w", [], 1), queue.stream_jobs("v", ["a", "b"], 1)
    async with healthy, wrong:
        for _ in range(2):
            with pytest.raises(InvalidArgument) as caught:
                await asyncio.wait_for(anext(wrong), DEADLINE_S)
            assert "tags" in caught.value.field
        ids = await submit(queue)
        assert [job.id for job in await take_jobs(healthy, 1)] == ids
        assert [usage.spec.assignee_id for usage in queue.usage()] == ["w"]
    await queue.close()
