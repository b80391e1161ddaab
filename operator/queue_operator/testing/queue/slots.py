"""Capacity: when a slot is taken, and when it comes back."""

import asyncio
from collections.abc import Awaitable, Callable

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.desk import Consumer, Desk

Free = Callable[[str], Awaitable[object]]


@proves(
    "queue-api.CapacityManagement.rule.1",
    "queue-api.CapacityManagement.rule.2",
    "queue-api.ObservableStateChanges.rule.2",
    "queue-api.StreamJobs.post.11",
)
async def test_slots_are_all_that_a_stream_is_given(desk: Desk) -> None:
    stream, jobs = await desk.holding(3)
    [last] = await desk.submit()
    await desk.nothing_more(stream)
    await desk.calls.cancel_jobs([], [jobs[0].id])
    await desk.nothing_more(stream)
    assert (await desk.stats()).pending_jobs == 1
    await desk.calls.complete_job(jobs[1].id, b"")
    assert (await stream.one()).id == last.id
    await desk.submit()
    await desk.nothing_more(stream)


@proves(
    "queue-api.CapacityManagement.rule.3",
    "queue-api.StreamJobs.effect.4",
    "queue-api.Invariants.rule.9",
)
async def test_slots_are_taken_by_assignment_not_by_reading(desk: Desk) -> None:
    unread = await desk.waiting(2)
    [first] = await desk.submit()
    assert (await unread.one()).id == first.id
    await desk.submit(3)

    async def full() -> bool:
        return (await desk.stats()).running_jobs == 2

    await desk.until(full)
    await desk.settled()
    stats = await desk.stats()
    assert (stats.running_jobs, stats.pending_jobs) == (2, 2)
    await desk.calls.complete_job(first.id, b"")
    await desk.settled()
    await desk.until(full)


@proves("queue-api.CapacityManagement.rule.4", "queue-api.StreamJobs.effect.5")
async def test_slots_come_back_with_each_freeing_call(desk: Desk) -> None:
    stream = desk.stream(1)
    ended: list[Free] = [
        lambda job: desk.calls.complete_job(job, b""),
        lambda job: desk.calls.stop_job(job, ""),
        lambda job: desk.calls.mark_job_unknown_stopped(job, ""),
    ]
    cancelled: list[Free] = [
        lambda job: desk.calls.stop_job_with_retry(job, "x"),
        lambda job: desk.calls.acknowledge_cancellation(job, True),
    ]
    again: list[Free] = [
        lambda job: desk.calls.fail_job(job, "x"),
        lambda _: desk.calls.mark_worker_unresponsive(stream.assignee),
        lambda _: desk.calls.reset_running_jobs(),
    ]
    for free in (*ended, *cancelled, *again):
        [submitted] = await desk.submit()
        job = await stream.one()
        assert job.id == submitted.id
        if free in cancelled:
            await checks.ready(desk, JobState.CANCELLING, job)
        await free(job.id)
        if free in again:
            assert (await stream.one()).id == job.id
            await desk.calls.complete_job(job.id, b"")
    await desk.submit(2)
    await stream.one()
    await desk.nothing_more(stream)


@proves(
    "queue-api.CapacityManagement.rule.5",
    "queue-api.CoreConcepts.rule.2",
    "queue-api.StreamJobsUsage.rule.3",
    "queue-api.Slots.rule.2",
)
async def test_slots_of_two_streams_of_one_worker_are_apart(desk: Desk) -> None:
    same = f"{desk.namespace}-worker"
    # Both ask at the same time.
    small = await desk.looking(1, assignee=same)
    large = await desk.looking(3, assignee=same)
    await desk.submit(8)
    [held], others = await small.take(1), await large.take(3)
    await desk.nothing_more(small, large)
    await desk.calls.complete_job(others[0].id, b"")
    await large.one()
    await desk.nothing_more(small, large)
    await desk.calls.stop_job(held.id, "")
    await small.one()
    await desk.nothing_more(small, large)


@proves("queue-api.Slots.rule.3", "queue-api.MarkWorkerUnresponsive.post.4")
async def test_slots_come_back_with_the_loss_of_cancelled_jobs_too(desk: Desk) -> None:
    stream, jobs = await desk.holding(2)
    await desk.calls.cancel_jobs([], [jobs[0].id])
    await desk.submit(2)
    await desk.nothing_more(stream)
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    assert len(await stream.take(2)) == 2
    await desk.nothing_more(stream)


@proves("queue-api.Slots.rule.8")
async def test_slots_do_not_come_back_twice(desk: Desk) -> None:
    async def complete(desk: Desk, job_id: str) -> None:
        await desk.calls.complete_job(job_id, b"")

    await checks.frees_nothing_late(
        desk, complete, JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED
    )


@proves("queue-api.Slots.rule.9", "queue-api.Replicas.rule.3")
async def test_slots_come_back_within_a_third_of_a_ttl(desk: Desk) -> None:
    quick = Desk(desk.rig, await desk.rig.open(lease_ttl_s=1.5))
    stream, [held] = await quick.holding(1)
    [following] = await quick.submit()
    # Nobody hastens the comparison: it comes by its time.
    await quick.calls.complete_job(held.id, b"")
    [given] = await stream.batch(compare=False)
    assert given.id == following.id
    await quick.close()


async def _worked(desk: Desk, stream: Consumer, capacity: int, done: set[str], total: int) -> None:
    """Takes and finishes jobs, and looks each time that no more run than may."""
    held: list[str] = []
    while len(done) < total:
        if not held or (len(held) < capacity and not stream.start().waits):
            held += [job.id for job in await stream.batch()]
        assert len(held) <= capacity
        running = [await desk.get(job) for job in held]
        assert sum(job.state is JobState.RUNNING for job in running) <= capacity
        job = held.pop()
        await desk.calls.complete_job(job, b"")
        done.add(job)
        if len(done) >= total and stream.waits:
            return


@proves("queue-api.Invariants.rule.2", "queue-api.Invariants.rule.1")
async def test_slots_hold_while_many_streams_work_at_once(desk: Desk) -> None:
    jobs = await desk.submit(40)
    streams = [desk.stream(capacity) for capacity in (1, 2, 3)]
    done: set[str] = set()
    workers = [
        asyncio.ensure_future(_worked(desk, stream, capacity, done, len(jobs)))
        for stream, capacity in zip(streams, (1, 2, 3), strict=True)
    ]

    async def finished() -> bool:
        stats = await desk.stats()
        assert stats.running_jobs <= 6
        return stats.completed_jobs == len(jobs)

    await desk.until(finished)
    for worker in workers:
        worker.cancel()
    answers = await asyncio.gather(*workers, return_exceptions=True)
    assert [a for a in answers if a and not isinstance(a, asyncio.CancelledError)] == []
