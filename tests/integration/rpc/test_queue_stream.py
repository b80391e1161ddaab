"""StreamJobs over gRPC: what comes through, how it ends, and what becomes of jobs nobody took."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.chaos.proxy import Proxy
from tests.integration.queue.leases import lease_end
from tests.waiting import DEADLINE_S, until

from queue_operator.client.grpc import GrpcQueue, GrpcStream
from queue_operator.client.grpc.stream import Reading
from queue_operator.domain.errors import InvalidArgument, StaleLease, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1.queue_pb2_grpc import QueueStub

NewJobs = Callable[..., list[Job]]


async def batch(stream: GrpcStream) -> list[Job]:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(stream)


async def state(queue: QueueService, job: Job) -> JobState:
    return (await queue.get_job(job.id, namespace=job.namespace)).state


async def waits(queue: QueueService, step: "asyncio.Future[Any]") -> None:
    """Until the stream of the step is open, and the step waits for a batch."""
    async with asyncio.timeout(DEADLINE_S):
        while not queue.usage():
            assert not step.done()
            await queue.ping()


@proves("queue-api.WorkerPlane.rule.2")
async def test_jobs_come_with_their_tokens_and_capacity_holds(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    jobs = new_jobs(3, payload=b"p", tags=frozenset({"eu", "big"}))
    await client.enqueue_jobs([*jobs, *new_jobs(1)])
    async with client.stream_jobs("me", ["eu"], 2, namespace=namespace) as stream:
        first = [job for job in await batch(stream)]
        while len(first) < 2:
            first += await batch(stream)
        assert [job.id for job in first] == [job.id for job in jobs[:2]]
        assert (first[0].payload, first[0].state) == (b"p", JobState.RUNNING)
        assert await state(queue, jobs[2]) is JobState.INITIAL_PENDING
        token = first[0].token
        await client.complete_job(first[0].id, b"", namespace=namespace, token=token)
        # Again, as if the answer had been lost.
        await client.complete_job(first[0].id, b"", namespace=namespace, token=token)
        [third] = await batch(stream)
        assert third.id == jobs[2].id
        with pytest.raises(StaleLease):
            await client.fail_job(third.id, "no", namespace=namespace, token=token)


@proves("queue-api.WorkerPlane.rule.2")
async def test_the_queue_renews_what_a_consumer_holds(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs, dsn: str
) -> None:
    [mine, other] = [*new_jobs(1, tags=frozenset({"eu"})), *new_jobs(1, tags=frozenset({"us"}))]
    await client.enqueue_jobs([other, mine])
    async with client.stream_jobs("me", ["eu"], 2, namespace=namespace) as stream:
        [job] = await batch(stream)
        assert job.id == mine.id
        # Who is at the other end never says that it has the job.
        ends = [await lease_end(dsn, job.id)]
        for _ in range(3):
            await queue.keeper.renew()
            ends.append(await lease_end(dsn, job.id))
        assert ends == sorted(set(ends))
        assert (await queue.get_job(job.id, namespace=namespace)).attempt == 1
    # The end of the stream ends that, and what was not its own was never touched.
    await queue.keeper.renew()
    assert await lease_end(dsn, job.id) == ends[-1]
    assert await state(queue, mine) is JobState.RUNNING
    assert await state(queue, other) is JobState.INITIAL_PENDING


async def test_jobs_nobody_took_go_back_when_the_stream_is_closed(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    taken, untaken = new_jobs(2)
    stream = client.stream_jobs("me", [], 2, namespace=namespace)
    await client.enqueue_job(taken)
    [got] = await batch(stream)
    await client.enqueue_job(untaken)

    async def assigned() -> bool:
        return await state(queue, untaken) is JobState.RUNNING

    await until(assigned)
    await stream.aclose()
    back = await queue.get_job(untaken.id, namespace=namespace)
    assert (back.state, back.attempt) == (JobState.FAILED_RETRY, 0)
    assert await state(queue, taken) is JobState.RUNNING
    await client.complete_job(got.id, b"", namespace=namespace, token=got.token)
    assert queue.usage() == []
    with pytest.raises(StopAsyncIteration):
        await batch(stream)


async def test_what_came_through_is_given_back_by_hand_where_the_server_cannot_end_the_stream(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    [taken, job] = new_jobs(2)
    stream = client.stream_jobs("me", [], 5, namespace=namespace)
    await client.enqueue_job(taken)
    await batch(stream)
    step = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)  # it has begun
    step.cancel()
    await asyncio.wait([step])
    await client.enqueue_job(job)
    reading = stream._source
    assert isinstance(reading, Reading)
    assert reading._read is not None
    await asyncio.wait_for(asyncio.wait([reading._read]), DEADLINE_S)
    reading._stream_id = "of another server"
    await stream.aclose()
    back = await queue.get_job(job.id, namespace=namespace)
    assert (back.state, back.attempt) == (JobState.FAILED_RETRY, 0)


async def test_a_step_that_is_cancelled_loses_nothing(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    async with client.stream_jobs("me", [], 5, namespace=namespace) as stream:
        step = asyncio.ensure_future(anext(stream))
        await waits(queue, step)
        step.cancel()
        await asyncio.wait([step])
        [job] = new_jobs()
        await client.enqueue_job(job)
        assert [got.id for got in await batch(stream)] == [job.id]


async def test_a_waiting_step_ends_when_its_stream_is_closed(
    client: GrpcQueue, queue: QueueService, namespace: str
) -> None:
    stream = client.stream_jobs("me", [], 5, namespace=namespace)
    step = asyncio.ensure_future(anext(stream))
    await waits(queue, step)
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await step


async def test_a_stream_that_is_closed_while_it_is_opened(
    client: GrpcQueue, queue: QueueService, namespace: str
) -> None:
    stream = client.stream_jobs("me", [], 5, namespace=namespace)
    step = asyncio.ensure_future(batch(stream))
    await asyncio.sleep(0)  # it has begun
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await step
    assert queue.usage() == []


async def test_each_batch_goes_to_one_of_the_steps_that_wait(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs
) -> None:
    async with client.stream_jobs("me", [], 5, namespace=namespace) as stream:
        steps = [asyncio.ensure_future(batch(stream)) for _ in range(2)]
        jobs = new_jobs(2)
        for job in jobs:
            await client.enqueue_job(job)
            await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        got = [job.id for step in steps for job in await step]
        assert sorted(got) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("who", ["queue", "server", "client"])
async def test_streams_end_with_what_they_are_streams_of(
    plane: Any, client: GrpcQueue, queue: QueueService, namespace: str, who: str
) -> None:
    stream = client.stream_jobs("me", [], 5, namespace=namespace)
    step = asyncio.ensure_future(anext(stream))
    await waits(queue, step)
    match who:
        case "queue":
            await queue.stop()
        case "server":
            await plane.server.stop()
        case _:
            await client.close()
    with pytest.raises(StopAsyncIteration):
        await step
    assert queue.usage() == []


async def test_a_stream_that_is_never_opened_is_closed_too(client: GrpcQueue) -> None:
    stream = client.stream_jobs("me", [], 5)
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await batch(stream)


async def test_bad_arguments_are_told_at_the_call_and_limits_at_the_first_step(
    client: GrpcQueue, queue: QueueService, namespace: str
) -> None:
    for arguments, field in (
        (("", [], 1), "assignee_id"),
        (("me", "tag", 1), "tags"),
        (("me", [""], 1), "tags"),
        (("me", [], 0), "max_assigned_jobs"),
        (("me", [], -1), "max_assigned_jobs"),
        (("me", [], 1.5), "max_assigned_jobs"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            client.stream_jobs(*arguments, namespace=namespace)
        assert caught.value.field == field
    stream = client.stream_jobs("x" * 1000, [], 1, namespace=namespace)
    with pytest.raises(InvalidArgument) as caught:
        await batch(stream)
    assert caught.value.field == "assignee_id"
    assert queue.usage() == []


async def test_a_capacity_beyond_all_bounds_is_refused_and_harms_nobody(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    async with client.stream_jobs("other", [], 5, namespace=namespace) as other:
        with pytest.raises(InvalidArgument) as caught:
            await anext(client.stream_jobs("me", [], 1_000_000_000, namespace=namespace))
        assert caught.value.field == "max_assigned_jobs"
        [job] = new_jobs()
        await client.enqueue_job(job)
        assert [got.id for got in await batch(other)] == [job.id]


async def test_a_large_batch_comes_in_messages_that_fit(
    roomy_plane: Any, namespace: str, new_jobs: NewJobs
) -> None:
    client = GrpcQueue(f"127.0.0.1:{roomy_plane.port}", roomy_plane.token)
    jobs = new_jobs(5, payload=b"x" * 1024 * 1024)
    for job in jobs:
        await client.enqueue_job(job)
    sizes: list[int] = []
    async with client.stream_jobs("me", [], 5, namespace=namespace) as stream:
        while sum(sizes) < 5:
            sizes.append(len(await batch(stream)))
    assert max(sizes) < 4
    await client.close()


async def test_a_line_that_is_cut_is_an_error_and_not_an_end(
    plane: Any, queue: QueueService, namespace: str
) -> None:
    async with Proxy(lambda: ("127.0.0.1", plane.port)) as proxy:
        client = GrpcQueue(f"127.0.0.1:{proxy.port}", plane.token)
        stream = client.stream_jobs("me", [], 5, namespace=namespace)
        await stream.__aenter__()
        step = asyncio.ensure_future(anext(stream))
        await proxy.cut()
        with pytest.raises(Unavailable, match="the stream was cut"):
            await step
        with pytest.raises(StopAsyncIteration):
            await batch(stream)

        async def gone() -> bool:
            await queue.ping()
            return not queue.usage()

        await until(gone)
        await client.close()


@proves("queue-api.WorkerPlane.rule.2")
async def test_what_was_not_written_goes_back_when_the_caller_is_gone(
    roomy_plane: Any, namespace: str, new_jobs: NewJobs, metadata: Any
) -> None:
    client, queue = GrpcQueue(f"127.0.0.1:{roomy_plane.port}", roomy_plane.token), roomy_plane.queue
    jobs = new_jobs(12, payload=b"x" * 1024 * 1024)
    for job in jobs:
        await client.enqueue_job(job)
    async with client._calls.line.call() as stub:
        assert isinstance(stub, QueueStub)
        request = pb.StreamJobsRequest(assignee_id="deaf", max_assigned_jobs=12)
        call = stub.StreamJobs(request, metadata=metadata(namespace))
        await call.initial_metadata()

        async def all_assigned() -> bool:
            return {await state(queue, job) for job in jobs} == {JobState.RUNNING}

        await until(all_assigned)
        call.cancel()

        async def some_back() -> bool:
            states = [await state(queue, job) for job in jobs]
            return not queue.usage() and JobState.FAILED_RETRY in states

        await until(some_back)
    states = [await state(queue, job) for job in jobs]
    # What was written may have arrived, for all the server knows.
    assert set(states) == {JobState.RUNNING, JobState.FAILED_RETRY}
    await client.close()
