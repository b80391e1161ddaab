"""A queue that ends: once, wholly, whoever asks and however often."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held
from queue_operator.queue.protocol import HostedQueue, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves


class Recording(MemoryBackend):
    """Says how many streams were open when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open_streams: list[int] = []
        self.queue: QueueService | None = None

    async def close(self) -> None:
        assert self.queue is not None
        self.open_streams.append(len(self.queue.usage()))
        await super().close()


@pytest.fixture
async def backend() -> Recording:
    backend = Recording()
    backend.queue = QueueService(backend)
    await backend.queue.start()
    await backend.queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    return backend


@proves("queue-api.Close.rule.1")
async def test_two_who_close_at_once_close_it_once_and_both_wait(backend: Recording) -> None:
    assert backend.queue is not None
    assert len(backend.queue.usage()) == 1
    await asyncio.gather(backend.queue.close(), backend.queue.close())
    assert backend.open_streams == [0]
    await backend.queue.close()
    assert backend.open_streams == [0]
    with pytest.raises(Unavailable):
        await backend.queue.open_stream(StreamSpec(assignee_id="w", capacity=1))


async def test_whoever_gives_up_waiting_does_not_stop_the_closing(backend: Recording) -> None:
    assert backend.queue is not None
    impatient = asyncio.create_task(backend.queue.close())
    await asyncio.wait([impatient], timeout=0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await backend.queue.close()
    assert backend.open_streams == [0]


@proves("queue-api.Close.post.5", "queue-api.Close.expect.1")
async def test_a_part_that_cannot_be_stopped_keeps_nobody_from_closing_the_store(
    backend: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend.queue is not None
    stopped: list[str] = []
    stop = backend.queue.dispatcher.stop

    async def fails() -> None:
        raise RuntimeError("it hangs")

    async def tells() -> None:
        await stop()
        stopped.append("dispatcher")

    # Stopped in this order.
    monkeypatch.setattr(backend.queue.keeper, "stop", fails)
    monkeypatch.setattr(backend.queue.dispatcher, "stop", tells)
    with pytest.raises(RuntimeError, match="it hangs"):
        await backend.queue.close()
    assert (stopped, backend.open_streams) == (["dispatcher"], [0])


CALLS: dict[str, Callable[[QueueService], Awaitable[object]]] = {
    "ping": lambda q: q.ping(),
    "enqueue_job": lambda q: q.enqueue_job(Job(id="j", type="t")),
    "enqueue_jobs": lambda q: q.enqueue_jobs([]),
    "submit": lambda q: q.submit([Job(id="j", type="t")]),
    "retry_jobs": lambda q: q.retry_jobs([]),
    "complete_job": lambda q: q.complete_job("j", b""),
    "fail_job": lambda q: q.fail_job("j", "x"),
    "stop_job": lambda q: q.stop_job("j", "x"),
    "stop_job_with_retry": lambda q: q.stop_job_with_retry("j", "x"),
    "mark_job_unknown_stopped": lambda q: q.mark_job_unknown_stopped("j", "x"),
    "cancel_jobs": lambda q: q.cancel_jobs([], ["j"]),
    "suspend_jobs": lambda q: q.suspend_jobs(["j"]),
    "resume_jobs": lambda q: q.resume_jobs(["j"]),
    "acknowledge_cancellation": lambda q: q.acknowledge_cancellation("j", True),
    "mark_worker_unresponsive": lambda q: q.mark_worker_unresponsive("w"),
    "reset_running_jobs": lambda q: q.reset_running_jobs(),
    "get_job": lambda q: q.get_job("j"),
    "get_job_stats": lambda q: q.get_job_stats([]),
    "cleanup_expired_jobs": lambda q: q.cleanup_expired_jobs(1.0),
    "delete_jobs": lambda q: q.delete_jobs([], ["j"]),
    "give_back": lambda q: q.give_back([Held("j", "t")]),
    "open_stream": lambda q: q.open_stream(StreamSpec(assignee_id="w", capacity=1)),
}


def test_every_call_is_listed() -> None:
    public = {name for name in dir(HostedQueue) if not name.startswith("_")}
    assert public - CALLS.keys() == {
        *("stream_jobs", "usage", "close", "backend", "may_run", "look")
    }


@pytest.mark.parametrize("name", CALLS)
async def test_a_queue_that_was_stopped_takes_no_calls(name: str) -> None:
    """Although its store, which is another's, is still there."""
    backend = MemoryBackend()
    queue = QueueService(backend)
    await queue.start()
    await queue.stop()
    with pytest.raises(Unavailable):
        await CALLS[name](queue)
    with pytest.raises(Unavailable):
        queue.stream_jobs("w", [], 1)
    await backend.ping()
