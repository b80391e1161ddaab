"""A worker that is stopped while it holds jobs, found by the chaos run: once its leases had run
out it was given others to the full of its capacity, and had twice as many when it went on.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.chaos.miniature import TTL_S, JumpingClock

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.lease import Held, LeaseStatus, heartbeat_interval_s
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings

BEAT_S = heartbeat_interval_s(TTL_S)
FAILED = ErrorInfo("it fails", ErrorCategory.TEMPORARY, "FAILS")


@pytest.fixture
async def clock() -> AsyncIterator[JumpingClock]:
    clock = JumpingClock()
    ticking = asyncio.create_task(clock.run())
    yield clock
    ticking.cancel()


@pytest.fixture
async def queue(clock: JumpingClock) -> AsyncIterator[QueueService]:
    backend = MemoryBackend(MemoryShelf(), clock=clock.date, sleep=clock.sleep)
    queue = QueueService(backend, QueueSettings(lease_ttl_s=TTL_S), clock=clock)
    await queue.start()
    yield queue
    await queue.close()


async def take(stream: Stream) -> Assignment:
    while (push := await stream.next()) is not None:
        stream.delivered(push)
        for assignment in push.assignments:
            return assignment
    raise AssertionError("the stream has ended")


async def test_it_gets_no_more_before_it_has_said_what_it_holds(
    queue: QueueService, clock: JumpingClock
) -> None:
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    await queue.enqueue_job(Job(id="first", type="t"))
    first = await take(stream)
    held = [Held(first.job_id, first.token)]
    await stream.heartbeat(held)

    await queue.enqueue_job(Job(id="second", type="t"))
    waiting = asyncio.create_task(take(stream))
    await clock.sleep(4 * TTL_S)
    assert not waiting.done()

    # It goes on, still at its lost job, of which the queue hears again and again.
    for _ in range(3):
        [answer] = await stream.heartbeat(held)
        assert answer.status is LeaseStatus.LOST
        await clock.sleep(BEAT_S)
    assert not waiting.done()
    assert [usage.busy for usage in queue.usage()] == [1]
    waiting.cancel()


async def test_it_gets_no_more_when_it_was_stopped_again_at_once(
    queue: QueueService, clock: JumpingClock
) -> None:
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    await queue.enqueue_job(Job(id="first", type="t"))
    first = await take(stream)
    held = [Held(first.job_id, first.token)]
    await stream.heartbeat(held)
    await queue.enqueue_job(Job(id="second", type="t"))
    waiting = asyncio.create_task(take(stream))
    await clock.sleep(4 * TTL_S)

    # It says that it still runs the job, and is stopped: the silence says nothing else.
    for _ in range(2):
        await stream.heartbeat(held)
        await clock.sleep(4 * TTL_S)
        assert not waiting.done()

    failed = Outcome(first.job_id, Event.FAIL, token=first.token, error=FAILED, worker_plane=True)
    await stream.settle([failed])
    assert (await waiting).job_id in ("first", "second")


async def test_it_gets_more_when_it_has_nothing_left_to_say(
    queue: QueueService, clock: JumpingClock
) -> None:
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    await queue.enqueue_job(Job(id="first", type="t"))
    first = await take(stream)
    await stream.heartbeat([Held(first.job_id, first.token)])
    await queue.cancel_jobs([], ["first"], force=True)
    await clock.sleep(2 * TTL_S)
    await queue.enqueue_job(Job(id="second", type="t"))
    waiting = asyncio.create_task(take(stream))

    [answer] = await stream.heartbeat([Held(first.job_id, first.token)])
    assert answer.status is LeaseStatus.ENDED
    # Its handler is interrupted, and one that holds nothing sends no heartbeats.
    await clock.sleep(2 * TTL_S)
    assert (await waiting).job_id == "second"
