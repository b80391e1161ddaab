"""Pauses: streams are given nothing of what is paused, and what waited once it goes on."""

from typing import Any

import pytest

from queue_operator.backends.protocol import Pause
from queue_operator.domain.job import Demand
from queue_operator.domain.states import JobState
from queue_operator.testing.queue.desk import Desk


async def _pause(desk: Desk, type: str) -> None:
    """Returns when the queue that has the streams knows it, which may take it a moment."""
    calls: Any = desk.pair.calls
    streams: Any = desk.pair.streams
    await calls.backend.pause(Pause(namespace=desk.namespace, type=type))
    [bait] = await desk.submit(tags=frozenset({"bait"}))
    demand = Demand(assignee_id="any", limit=1, namespace=desk.namespace, types=frozenset({"work"}))

    async def is_known() -> bool:
        there: list[bool] = await streams.backend.eligible_for([demand])
        return there == [False]

    await desk.until(is_known)
    await desk.calls.cancel_jobs([], [bait.id])


async def _resume(desk: Desk, type: str) -> None:
    calls: Any = desk.pair.calls
    assert await calls.backend.resume(desk.namespace, type)


@pytest.mark.parametrize("type", ["work", ""], ids=["type", "namespace"])
async def test_a_stream_is_given_what_was_paused_once_it_goes_on(desk: Desk, type: str) -> None:
    consumer = await desk.waiting(tags=["mine"])
    await _pause(desk, type)
    jobs = await desk.submit(3, tags=frozenset({"mine"}))
    await desk.nothing_more(consumer)
    if type:
        [other] = await desk.submit(type="other", tags=frozenset({"mine"}))
        assert (await consumer.one()).id == other.id
    await desk.nothing_more(consumer)
    assert (await desk.stats("mine")).pending_jobs == 3
    await _resume(desk, type)
    assert {job.id for job in await consumer.take(3)} == {job.id for job in jobs}


async def test_a_stream_that_opens_during_a_pause_is_given_jobs_after_it(desk: Desk) -> None:
    await _pause(desk, "")
    [job] = await desk.submit()
    consumer = await desk.waiting()
    await _resume(desk, "")
    assert (await consumer.one()).id == job.id


async def test_a_job_that_comes_back_during_a_pause_waits(desk: Desk) -> None:
    consumer, [job] = await desk.holding(1, tags=frozenset({"mine"}))
    await _pause(desk, "work")
    await desk.calls.fail_job(job.id, "boom")
    await desk.nothing_more(consumer)
    assert await desk.state(job) is JobState.FAILED_RETRY
    await _resume(desk, "work")
    assert (await consumer.one()).id == job.id
    await _pause(desk, "work")
    await desk.calls.complete_job(job.id, b"")
    assert await desk.state(job) is JobState.COMPLETED
