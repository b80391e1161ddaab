"""Close. Each test closes queues of its own."""

import asyncio

import pytest

from queue_operator.domain.errors import Unavailable
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Desk


async def _opened(desk: Desk) -> Desk:
    return Desk(desk.rig, await desk.rig.open())


async def _close(other: Desk) -> None:
    await other.rig.shut(other.pair)


@proves("queue-api.Close.pre.1")
async def test_close_of_an_unused_queue(desk: Desk) -> None:
    await _close(await _opened(desk))


@proves(
    "queue-api.Close.post.1",
    "queue-api.Close.effect.2",
    "queue-api.ErrorConditions.rule.6",
    "queue-api.ErrorHandling.rule.3",
)
async def test_close_ends_every_stream_without_an_error(desk: Desk) -> None:
    other = await _opened(desk)
    streams = [await other.waiting(tags=[tag]) for tag in "abc"]
    await _close(other)
    for stream in streams:
        await stream.ends()
    with pytest.raises(Unavailable):
        await other.calls.enqueue_job(other.job())


@proves("queue-api.Close.post.2", "queue-api.Close.effect.1")
async def test_close_returns_when_all_is_given_back(desk: Desk) -> None:
    other = await _opened(desk)
    stream = await other.waiting(4)
    await other.submit()
    taken = await stream.one()
    waiting = await other.submit(3)

    async def assigned() -> bool:
        return (await other.stats()).running_jobs == 4

    await desk.until(assigned)
    await _close(other)
    assert await _state(desk, other, taken.id) is JobState.RUNNING
    left = [await _state(desk, other, job.id) for job in waiting]
    # What was written before is the consumer's, and comes before the end.
    came = await stream.take(3) if desk.rig.carries else []
    assert left == [JobState.RUNNING if came else JobState.FAILED_RETRY] * 3
    await stream.ends()


async def _state(desk: Desk, other: Desk, job_id: str) -> JobState:
    return (await desk.pair.calls.get_job(job_id, namespace=other.namespace)).state


@proves("queue-api.Close.post.3", "queue-api.Close.post.4", "queue-api.Close.effect.3")
async def test_close_makes_every_call_unavailable(desk: Desk) -> None:
    other = await _opened(desk)
    job = await other.job_in(JobState.CANCELLING)
    await _close(other)
    calls = other.calls
    made = [
        calls.enqueue_job(other.job()),
        calls.enqueue_jobs([other.job()]),
        calls.complete_job(job.id, b""),
        calls.fail_job(job.id, "x"),
        calls.stop_job(job.id, ""),
        calls.stop_job_with_retry(job.id, ""),
        calls.mark_job_unknown_stopped(job.id, ""),
        calls.cancel_jobs([], [job.id]),
        calls.acknowledge_cancellation(job.id, True),
        calls.mark_worker_unresponsive("w"),
        calls.get_job(job.id),
        calls.get_job_stats([]),
        calls.cleanup_expired_jobs(1.0),
        calls.reset_running_jobs(),
        calls.delete_jobs([], [job.id]),
        _opens_a_stream(other),
    ]
    answers = await asyncio.gather(*made, return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, Unavailable)] == []
    assert await _state(desk, other, job.id) is JobState.CANCELLING


async def _opens_a_stream(other: Desk) -> None:
    await other.stream().batch()


@proves("queue-api.Close.rule.1")
async def test_close_again_waits_for_the_first(desk: Desk) -> None:
    other = await _opened(desk)
    stream = await other.waiting(2)
    await other.submit()
    await stream.one()
    [waiting] = await other.submit()

    async def assigned() -> bool:
        return (await other.stats()).running_jobs == 2

    await desk.until(assigned)
    closing = [asyncio.ensure_future(_close(other)) for _ in range(3)]
    left = JobState.RUNNING if desk.rig.carries else JobState.FAILED_RETRY
    for first in asyncio.as_completed(closing):
        await first
        assert await _state(desk, other, waiting.id) is left
    await _close(other)
    for queue in other.pair:
        await queue.close()
