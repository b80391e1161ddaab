"""Every promise of StreamJobs."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest
from tests.waiting import take_jobs, until

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings

NewJobs = Callable[..., list[Job]]


async def running(queue: QueueService, namespace: str) -> int:
    return (await queue.get_job_stats([], namespace=namespace)).running_jobs


async def test_jobs_already_there_are_assigned_at_once(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    jobs = new_jobs(3, payload=b"\x00work", tags=frozenset({"eu"}))
    assert await queue.enqueue_jobs(jobs) == [job.id for job in jobs]
    async with aclosing(queue.stream_jobs("w", [], 10, namespace=namespace)) as stream:
        got = await take_jobs(stream, 3)
    assert {job.id for job in got} == {job.id for job in jobs}
    for job in got:
        assert job.state is JobState.RUNNING
        assert job.assignee_id == "w"
        assert job.assigned_at is not None
        assert (job.payload, job.tags) == (b"\x00work", frozenset({"eu"}))
        stored = await queue.get_job(job.id, namespace=namespace)
        assert stored.state is JobState.RUNNING
        assert stored.assignee_id == "w"


async def test_all_pending_jobs_are_found_even_in_several_claims(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(1200))
    async with aclosing(queue.stream_jobs("w", [], 2000, namespace=namespace)) as stream:
        assert len({job.id for job in await take_jobs(stream, 1200)}) == 1200


async def test_new_jobs_wake_a_waiting_stream(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    async with aclosing(queue.stream_jobs("w", [], 10, namespace=namespace)) as stream:
        waiting = asyncio.ensure_future(take_jobs(stream, 1))
        job_id = await queue.enqueue_job(new_jobs()[0])
        assert [job.id for job in await waiting] == [job_id]


async def test_a_job_must_carry_all_tags_of_the_worker(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    match = new_jobs(tags=frozenset({"a", "b", "c"}))[0]
    exact = new_jobs(tags=frozenset({"a", "b"}))[0]
    others = [*new_jobs(tags=frozenset({"a"})), *new_jobs(tags=frozenset({"A", "b"})), *new_jobs()]
    await queue.enqueue_jobs([*others, match, exact])
    async with aclosing(queue.stream_jobs("w", ["b", "a"], 10, namespace=namespace)) as stream:
        assert {job.id for job in await take_jobs(stream, 2)} == {match.id, exact.id}
        assert await running(queue, namespace) == 2
    async with aclosing(queue.stream_jobs("v", [], 10, namespace=namespace)) as stream:
        assert {job.id for job in await take_jobs(stream, 3)} == {job.id for job in others}


async def test_jobs_of_other_namespaces_stay_there(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    job = new_jobs()[0]
    await queue.enqueue_job(job)
    async with aclosing(queue.stream_jobs("w", [], 10, namespace=namespace + "-x")) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        async with aclosing(queue.stream_jobs("v", [], 10, namespace=namespace)) as own:
            assert [got.id for got in await take_jobs(own, 1)] == [job.id]
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_capacity_is_never_exceeded_and_comes_back(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    jobs = new_jobs(12)
    await queue.enqueue_jobs(jobs)
    finished: set[str] = set()
    async with aclosing(queue.stream_jobs("w", [], 3, namespace=namespace)) as stream:
        while len(finished) < 12:
            for job in await take_jobs(stream, 1):
                assert await running(queue, namespace) <= 3
                await queue.complete_job(job.id, b"ok", namespace=namespace)
                finished.add(job.id)
    assert finished == {job.id for job in jobs}
    assert (await queue.get_job_stats([], namespace=namespace)).completed_jobs == 12


async def test_every_way_out_of_running_gives_the_slot_back(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(6))
    async with aclosing(queue.stream_jobs("w", [], 1, namespace=namespace)) as stream:
        ids = []

        async def following() -> str:
            ids.append((await take_jobs(stream, 1))[0].id)
            return ids[-1]

        await queue.complete_job(await following(), b"", namespace=namespace)
        await queue.stop_job(await following(), "", namespace=namespace)
        await queue.mark_job_unknown_stopped(await following(), "gone", namespace=namespace)
        cancelled = await following()
        await queue.cancel_jobs([], [cancelled], namespace=namespace)
        await queue.acknowledge_cancellation(cancelled, True, namespace=namespace)
        cancelled = await following()
        await queue.cancel_jobs([], [cancelled], namespace=namespace)
        await queue.stop_job_with_retry(cancelled, "stopped", namespace=namespace)
        await following()
    states = [(await queue.get_job(job_id, namespace=namespace)).state for job_id in ids[:5]]
    assert states == [
        JobState.COMPLETED,
        JobState.STOPPED,
        JobState.UNKNOWN_STOPPED,
        JobState.STOPPED,
        JobState.STOPPED,
    ]


async def test_each_stream_has_a_capacity_of_its_own_even_for_one_assignee(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(6))
    async with (
        aclosing(queue.stream_jobs("same", [], 2, namespace=namespace)) as first,
        aclosing(queue.stream_jobs("same", [], 3, namespace=namespace)) as second,
    ):
        got = await asyncio.gather(take_jobs(first, 2), take_jobs(second, 3))
        assert [len(jobs) for jobs in got] == [2, 3]
        await queue.complete_job(got[1][0].id, b"", namespace=namespace)
        assert len(await take_jobs(second, 1)) == 1
        assert await running(queue, namespace) == 5


async def test_oldest_first(queue: QueueService, namespace: str, new_jobs: NewJobs) -> None:
    now = datetime.now(UTC)
    ages = [3, 1, 5, 2, 4]
    jobs = [new_jobs(created_at=now - timedelta(minutes=age))[0] for age in ages]
    await queue.enqueue_jobs(jobs)
    seen = []
    async with aclosing(queue.stream_jobs("w", [], 1, namespace=namespace)) as stream:
        for _ in jobs:
            job = (await take_jobs(stream, 1))[0]
            seen.append(job.id)
            await queue.complete_job(job.id, b"", namespace=namespace)
    assert seen == [job.id for _, job in sorted(zip(ages, jobs, strict=True), reverse=True)]


async def test_a_failed_job_comes_back(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    job_id = await queue.enqueue_job(new_jobs()[0])
    async with aclosing(queue.stream_jobs("w", [], 1, namespace=namespace)) as stream:
        await take_jobs(stream, 1)
        await queue.fail_job(job_id, "not today", namespace=namespace)
        again = (await take_jobs(stream, 1))[0]
    assert (again.id, again.attempt) == (job_id, 2)
    stored = await queue.get_job(job_id, namespace=namespace)
    assert (stored.retry_count, stored.error_message) == (1, "not today")


async def test_assigned_jobs_the_consumer_has_not_taken_go_back_when_the_stream_ends(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    taken_id = await queue.enqueue_job(new_jobs()[0])
    stream = queue.stream_jobs("w", [], 5, namespace=namespace)
    await take_jobs(stream, 1)
    waiting = new_jobs(4)
    await queue.enqueue_jobs(waiting)

    async def all_assigned() -> bool:
        return await running(queue, namespace) == 5

    await until(all_assigned)
    await stream.aclose()
    for job in waiting:
        stored = await queue.get_job(job.id, namespace=namespace)
        assert stored.state is JobState.FAILED_RETRY
        assert "context cancelled" in stored.error_message
        assert (stored.assignee_id, stored.attempt) == ("w", 0)
    assert (await queue.get_job(taken_id, namespace=namespace)).state is JobState.RUNNING
    async with aclosing(queue.stream_jobs("v", [], 5, namespace=namespace)) as other:
        assert {job.id for job in await take_jobs(other, 4)} == {job.id for job in waiting}


async def test_closing_the_queue_ends_all_streams(
    open_queue: Callable[[], Awaitable[QueueService]], namespace: str, new_jobs: NewJobs
) -> None:
    queue = await open_queue()
    await queue.enqueue_jobs(new_jobs(2))

    async def consume(assignee_id: str) -> list[Job]:
        stream = queue.stream_jobs(assignee_id, [], 1, namespace=namespace)
        return [job async for batch in stream for job in batch]

    consumers = [asyncio.ensure_future(consume(name)) for name in ("a", "b")]
    while len(queue.usage()) < 2 or any(not usage.busy for usage in queue.usage()):
        await queue.ping()
    await queue.close()
    assert [len(jobs) for jobs in await asyncio.gather(*consumers)] == [1, 1]


async def test_a_job_cancelled_before_the_consumer_took_it_is_stopped(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    await queue.enqueue_job(new_jobs()[0])
    async with aclosing(queue.stream_jobs("w", [], 2, namespace=namespace)) as stream:
        first = (await take_jobs(stream, 1))[0]
        waiting, later = new_jobs(2)
        await queue.enqueue_jobs([waiting, later])

        async def assigned() -> bool:
            stats = await queue.get_job_stats([], namespace=namespace)
            return stats.running_jobs == 2

        await until(assigned)
        held = [waiting, later]
        states = {job.id: (await queue.get_job(job.id, namespace=namespace)).state for job in held}
        doomed = next(job for job in held if states[job.id] is JobState.RUNNING)
        cancelled = await queue.cancel_jobs([], [doomed.id], namespace=namespace)
        assert cancelled.cancelled_job_ids == (doomed.id,)
        other = next(job for job in held if job is not doomed)
        assert [job.id for job in await take_jobs(stream, 1)] == [other.id]
        assert (await queue.get_job(doomed.id, namespace=namespace)).state is JobState.STOPPED
        assert (await queue.get_job(first.id, namespace=namespace)).state is JobState.RUNNING


async def test_leases_are_renewed_while_the_stream_is_open(
    open_queue: Callable[..., Awaitable[QueueService]],
    namespace: str,
    new_jobs: NewJobs,
    read_lease_end: Callable[[str], Awaitable[datetime]],
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=0.3))
    job_id = await queue.enqueue_job(new_jobs()[0])
    async with aclosing(queue.stream_jobs("w", [], 1, namespace=namespace)) as stream:
        await take_jobs(stream, 1)
        first_end = await read_lease_end(job_id)

        async def renewed_past_the_first_two_ttls() -> bool:
            return await read_lease_end(job_id) > first_end + timedelta(seconds=0.6)

        await until(renewed_past_the_first_two_ttls)
        stored = await queue.get_job(job_id, namespace=namespace)
        assert (stored.state, stored.attempt) == (JobState.RUNNING, 1)


async def test_when_the_stream_is_gone_its_jobs_are_taken_back(
    open_queue: Callable[..., Awaitable[QueueService]],
    namespace: str,
    new_jobs: NewJobs,
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=0.3))
    job_id = await queue.enqueue_job(new_jobs()[0])
    async with aclosing(queue.stream_jobs("w", [], 1, namespace=namespace)) as stream:
        await take_jobs(stream, 1)
    async with aclosing(queue.stream_jobs("v", [], 1, namespace=namespace)) as stream:
        again = (await take_jobs(stream, 1))[0]
    assert (again.id, again.attempt) == (job_id, 2)


async def test_mark_worker_unresponsive_and_reset_hand_jobs_to_others(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(2))
    async with aclosing(queue.stream_jobs("w", [], 2, namespace=namespace)) as stream:
        ids = {job.id for job in await take_jobs(stream, 2)}
        await queue.mark_worker_unresponsive("w")
        assert {job.id for job in await take_jobs(stream, 2)} == ids
        await queue.reset_running_jobs(namespace=namespace)
        assert {job.id for job in await take_jobs(stream, 2)} == ids


@pytest.mark.parametrize(
    ("arguments", "field"),
    [(("", [], 1), "assignee_id"), (("w", [], 0), "max_assigned_jobs"), (("w", [""], 1), "tags")],
)
async def test_wrong_arguments_are_refused_by_the_call_and_name_the_field(
    queue: QueueService, arguments: tuple[str, list[str], int], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        queue.stream_jobs(*arguments)
    assert caught.value.field == field


async def test_errors_of_the_store_reach_the_caller(
    queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    job_id = await queue.enqueue_job(new_jobs()[0])
    with pytest.raises(InvalidTransition):
        await queue.complete_job(job_id, b"", namespace=namespace)
    with pytest.raises(JobNotFound):
        await queue.fail_job("nobody", "x", namespace=namespace)
    with pytest.raises(InvalidArgument):
        await queue.fail_job(job_id, "", namespace=namespace)
