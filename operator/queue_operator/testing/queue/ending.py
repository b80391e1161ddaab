"""StreamJobs: how a stream ends, and what becomes of its jobs."""

import asyncio
import gc

import pytest

from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Consumer, Desk
from queue_operator.testing.queue.rig import LEASE_TTL_S


async def _assigned(desk: Desk, count: int) -> None:
    async def all_run() -> bool:
        stats = await desk.stats()
        return stats.running_jobs == count

    await desk.until(all_run)


async def _unread(desk: Desk, count: int) -> tuple[Consumer, Job, list[Job]]:
    """A stream, the job that its consumer took, and more that were assigned and not taken."""
    stream = await desk.waiting(count + 1)
    [taken] = await desk.submit()
    assert (await stream.one()).id == taken.id
    waiting = await desk.submit(count)
    await _assigned(desk, count + 1)
    return stream, taken, waiting


async def _cancelled(stream: Consumer) -> None:
    """The consumer is cancelled while it waits, as `async for` in a task that is."""
    consumer = asyncio.ensure_future(_consume(stream))
    await asyncio.sleep(0)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def _consume(stream: Consumer) -> None:
    try:
        while True:
            await stream.batch()
    finally:
        await stream.close()


@proves(
    "queue-api.StreamJobsTermination.rule.5",
    "queue-api.StreamJobs.post.1",
    "queue-api.StreamJobsTermination.then.3",
)
async def test_ending_gives_back_what_was_not_taken(desk: Desk) -> None:
    stream, taken, waiting = await _unread(desk, 3)
    await stream.close()
    for job in waiting:
        stored = await desk.get(job)
        assert (stored.state, stored.assignee_id) == (JobState.FAILED_RETRY, stream.assignee)
        assert "context cancelled" in stored.error_message
        assert (stored.retry_count, stored.attempt) == (1, 0)
    assert await desk.state(taken) is JobState.RUNNING
    other = desk.stream(5)
    assert {job.id for job in await other.take(3)} == {job.id for job in waiting}


@proves("queue-api.StreamJobsTermination.rule.1", "queue-api.StreamJobs.pre.1")
async def test_ending_by_cancelling_the_consumer(desk: Desk) -> None:
    stream = await desk.waiting(2)
    [taken] = await desk.submit()
    assert (await stream.one()).id == taken.id
    await _cancelled(stream)
    await desk.submit()
    with pytest.raises(StopAsyncIteration):
        await anext(stream.iterator)
    assert (await desk.stats()).pending_jobs == 1
    assert await desk.state(taken) is JobState.RUNNING


@proves(
    "queue-api.StreamJobs.post.12",
    "queue-api.StreamJobsTermination.rule.4",
    "queue-api.StreamJobsUsage.rule.6",
)
async def test_ending_twice_is_no_error(desk: Desk) -> None:
    pair = await desk.rig.open()
    other = Desk(desk.rig, pair)
    stream = other.stream()
    await other.submit()
    await stream.one()
    late = await other.waiting()
    for _ in range(2):
        await stream.close()
        with pytest.raises(StopAsyncIteration):
            await anext(stream.iterator)
    await desk.rig.shut(pair)
    await late.ends()
    await stream.close()
    await late.close()


@proves("queue-api.StreamJobsTermination.then.2", "queue-api.Cancellation.rule.6")
async def test_ending_stops_undelivered_jobs_that_were_cancelled(desk: Desk) -> None:
    stream, _, waiting = await _unread(desk, 2)
    await desk.calls.cancel_jobs([], [waiting[0].id])
    await stream.close()

    async def ended() -> bool:
        return await desk.states(waiting) == [JobState.STOPPED, JobState.FAILED_RETRY]

    await desk.until(ended)


@proves("queue-api.StreamJobs.rule.4", "queue-api.CancelJobs.effect.1")
async def test_jobs_cancelled_before_they_were_taken_never_come(desk: Desk) -> None:
    stream, _, waiting = await _unread(desk, 3)
    await desk.submit()
    doomed, *others = waiting
    await desk.calls.cancel_jobs([], [doomed.id])
    if desk.rig.far:
        await desk.rig.tick()

    given = await _after_a_cancel(desk, stream, doomed)
    assert doomed.id not in {job.id for job in given}
    assert {job.id for job in given} > {job.id for job in others}


async def _after_a_cancel(desk: Desk, stream: Consumer, doomed: Job) -> list[Job]:
    """What comes beside the cancelled job; its slot is free, so another one comes for it."""
    if desk.rig.carries:
        given = await stream.take(3)
        await desk.calls.acknowledge_cancellation(doomed.id, True)
        given += await stream.take(1)
        return [job for job in given if job.id != doomed.id]

    async def stopped() -> bool:
        return await desk.state(doomed) is JobState.STOPPED

    await desk.until(stopped)
    return await stream.take(3)


@proves("queue-api.StreamJobs.rule.3")
async def test_jobs_outlive_their_stream_until_their_lease_ends(desk: Desk) -> None:
    stream, jobs = await desk.holding(2)
    await stream.close()
    await desk.calls.complete_job(jobs[0].id, b"in time")
    await desk.rig.age(LEASE_TTL_S / 2)
    await desk.rig.tick()
    assert await desk.states(jobs) == [JobState.COMPLETED, JobState.RUNNING]
    await desk.rig.age(LEASE_TTL_S)
    await desk.rig.tick()
    assert await desk.states(jobs) == [JobState.COMPLETED, JobState.UNKNOWN_RETRY]
    assert (await desk.stream(1).one()).id == jobs[1].id


@proves("queue-api.StreamJobs.rule.2", "queue-api.Leases.rule.10")
async def test_jobs_of_an_open_stream_keep_their_leases(desk: Desk) -> None:
    stream, jobs = await desk.holding(2)
    for _ in range(4):
        await desk.rig.age(LEASE_TTL_S * 0.6)
        await desk.rig.tick()
    assert set(await desk.states(jobs)) == {JobState.RUNNING}
    await desk.nothing_more(stream)
    assert {(await desk.get(job)).attempt for job in jobs} == {1}


@proves("queue-api.Leases.rule.5", "queue-api.CoreConcepts.rule.1")
async def test_jobs_of_a_lost_worker_go_to_others(desk: Desk) -> None:
    gone, jobs = await desk.holding(2)
    await gone.close()
    other = await desk.waiting()
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    given = await other.take(2)
    assert {job.id for job in given} == {job.id for job in jobs}
    assert {(await desk.get(job)).assignee_id for job in jobs} == {other.assignee}
    assert {job.attempt for job in given} == {2}


@proves("queue-api.Leases.rule.6")
async def test_jobs_are_taken_back_once_however_many_sweep(desk: Desk) -> None:
    gone, jobs = await desk.holding(3)
    await gone.close()
    await desk.rig.age(LEASE_TTL_S + 1)
    await asyncio.gather(*(desk.rig.tick() for _ in range(4)))
    for job in jobs:
        stored = await desk.get(job)
        assert stored.state is JobState.UNKNOWN_RETRY
        # Submitted, assigned, lost.
        assert stored.transition == 3


@proves("queue-api.Leases.rule.7")
async def test_jobs_are_not_lost_to_an_outage_of_the_store(desk: Desk) -> None:
    gone, jobs = await desk.holding(2)
    await gone.close()
    await desk.rig.age(LEASE_TTL_S * 3, outage=True)
    await desk.rig.tick()
    assert set(await desk.states(jobs)) == {JobState.RUNNING}
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    assert set(await desk.states(jobs)) == {JobState.UNKNOWN_RETRY}


@proves("queue-api.Leases.rule.8")
async def test_jobs_lost_for_the_last_time_wait_a_while_for_a_late_outcome(desk: Desk) -> None:
    gone, [late, lost] = await desk.holding(2, max_attempts=1)
    await gone.close()
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    assert await desk.states([late, lost]) == [JobState.UNKNOWN_RETRY] * 2
    await desk.nothing_more(desk.stream())
    await desk.calls.complete_job(late.id, b"late")
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    assert await desk.states([late, lost]) == [JobState.COMPLETED, JobState.DEAD_LETTER]
    error = (await desk.get(lost)).error
    assert error is not None
    assert error.code == "WORKER_LOST"


@proves("queue-api.ErrorHandling.rule.4")
async def test_breaking_out_of_the_loop_ends_the_stream(desk: Desk) -> None:
    stream = await desk.waiting(4)
    [taken] = await desk.submit()
    assert (await stream.one()).id == taken.id
    waiting = await desk.submit(2)
    await _assigned(desk, 3)
    desk.forget(stream)
    stream.forget()
    gc.collect()

    async def returned() -> bool:
        return set(await desk.states(waiting)) == {JobState.FAILED_RETRY}

    await desk.until(returned)
    assert await desk.state(taken) is JobState.RUNNING


@proves("queue-api.StreamJobsTermination.rule.2", "queue-api.StreamJobs.post.2")
async def test_ending_by_closing_the_queue(desk: Desk) -> None:
    pair = await desk.rig.open()
    other = Desk(desk.rig, pair)
    streams = [await other.waiting(tags=[tag]) for tag in "ab"]
    await desk.rig.shut(pair)
    for stream in streams:
        await stream.ends()


@proves("queue-api.StreamJobs.post.3")
async def test_streams_outlive_an_outage_of_the_store(desk: Desk) -> None:
    stream = await desk.waiting()
    await desk.rig.break_down()
    try:
        with pytest.raises(Unavailable):
            await desk.calls.enqueue_job(desk.job())
        assert stream.waits
    finally:
        await desk.rig.mend()
    await desk.reachable()
    [job] = await desk.submit()
    assert (await stream.one()).id == job.id
