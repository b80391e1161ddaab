"""What a stream has to give back: kept only until it is back, and waited for at the end."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream


class Gated(MemoryBackend):
    """Stores outcomes while it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self.let.set()

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        self.asked.set()
        await self.let.wait()
        return await super().settle(outcomes)


@pytest.fixture
async def backend() -> Gated:
    return Gated()


@pytest.fixture
async def queue(backend: Gated) -> AsyncIterator[QueueService]:
    queue = QueueService(backend)
    await queue.start()
    yield queue
    await queue.close()


@pytest.fixture
async def stream(queue: QueueService) -> JobStream:
    """It lives, and is given no more."""
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    stream.drain()
    assert isinstance(stream, JobStream)
    return stream


async def turns() -> None:
    """All that need not wait for anything gets to where it has to."""
    for _ in range(20):
        await asyncio.sleep(0)


async def claimed(backend: Gated, job_id: str) -> list[Assignment]:
    await backend.enqueue_job(Job(id=job_id, type="t"))
    return await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=60)


async def test_what_is_back_is_not_kept(backend: Gated, stream: JobStream) -> None:
    for job_id in "abc":
        stream.give_back(await claimed(backend, job_id))
        assert len(stream._going_back) == 1
        await asyncio.gather(*stream._going_back)
    assert len(stream._going_back) == 0


async def test_a_stream_ends_after_all_is_back_whatever_is_refused(
    queue: QueueService, backend: Gated, stream: JobStream, caplog: pytest.LogCaptureFixture
) -> None:
    backend.let.clear()
    backend.asked.clear()
    stream.give_back(await claimed(backend, "a"))
    await backend.asked.wait()
    # From now on nothing more is taken back.
    stopping = asyncio.create_task(queue._completer.stop())
    await turns()
    stream.give_back(await claimed(backend, "b"))
    closing = asyncio.create_task(stream.close())
    await turns()
    [row] = await backend.list_sessions()
    assert (row.session_id, closing.done()) == ("w", False)
    backend.let.set()
    await asyncio.gather(closing, stopping)
    assert await backend.list_sessions() == []
    assert "1 undelivered jobs of w go back when their leases end" in caplog.text
