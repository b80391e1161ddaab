"""Messages over the size limit, both ways: a clear answer, and the session goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.waiting import DEADLINE_S

from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import PayloadTooLarge
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.rpc.session import HELD_AT_LEAST
from queue_operator.testing.clauses import proves
from queue_operator.wire.convert import RESULT_NOT_STORABLE
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]
MIB = 1024 * 1024
LIMIT = 64 * 1024
"""Of the fixture `plane`."""


def complete(job: pb.Assignment, result: bytes = b"") -> pb.Outcome:
    return pb.Outcome(
        job_id=job.job_id, token=job.token, kind=pb.OUTCOME_KIND_COMPLETE, result=result
    )


async def goes_on(worker: Any, queue: QueueService, jobs: list[Job]) -> None:
    """The worker gets jobs and is answered, over the connection that it has."""
    await queue.enqueue_jobs(jobs)
    for job in await worker.assignments(len(jobs)):
        [ack] = await worker.settle(complete(job))
        assert ack.state == JobState.COMPLETED


@proves("queue-api.WorkerPlane.rule.11")
async def test_a_batch_of_outcomes_of_which_one_is_too_big(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker, other = connect(), connect()
    welcome = await worker.hello(types=[pb.HandlerType(type="mail")])
    assert welcome.max_message_bytes == LIMIT
    await other.hello(types=[pb.HandlerType(type="other")])
    await queue.enqueue_jobs(new_jobs(3))
    first, big, last = await worker.assignments(3)
    batch = pb.OutcomeBatch(
        outcomes=[complete(first), complete(big, b"x" * 2 * LIMIT), complete(last)]
    )
    await worker.say(outcomes=batch)
    told = (await worker.hear_of("too_large")).too_large
    assert (told.kind, told.limit) == ("outcomes", LIMIT)
    assert told.size > 2 * LIMIT
    assert f"{told.size} bytes is over the limit of {LIMIT}" in told.error_message
    acks = (await worker.hear_of("outcome_acks")).outcome_acks.acks
    states = {ack.job_id: (ack.state, ack.error_code) for ack in acks}
    assert states == {
        first.job_id: (JobState.COMPLETED, ""),
        big.job_id: (JobState.DEAD_LETTER, ""),
        last.job_id: (JobState.COMPLETED, ""),
    }
    error = (await queue.get_job(big.job_id, namespace=namespace)).error
    assert error is not None
    assert error.code == RESULT_NOT_STORABLE
    await goes_on(worker, queue, new_jobs(2))
    await goes_on(other, queue, new_jobs(2, type="other"))


async def test_many_outcomes_that_are_too_much_together_are_all_stored(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello(100)
    await queue.enqueue_jobs(new_jobs(80))
    jobs = await worker.assignments(80)
    acks = await worker.settle(*(complete(job, b"x" * 1000) for job in jobs))
    assert [ack.state for ack in acks] == [JobState.COMPLETED] * 80


@proves("queue-api.WorkerPlane.rule.11")
@pytest.mark.parametrize("kind", ["progress", "cancel_receipts", "types"])
async def test_what_is_not_answered_by_item_is_not_taken(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, kind: str
) -> None:
    worker, other = connect(), connect()
    await worker.hello(types=[pb.HandlerType(type="mail")])
    await other.hello(types=[pb.HandlerType(type="other")])
    held = [pb.HeldJob(job_id=f"{n:0200}", token="t") for n in range(500)]
    reports = [pb.Progress(job_id="j", token="t", message="x" * 500) for _ in range(200)]
    # If these were taken, the worker would get no more of the jobs below.
    types = [pb.HandlerType(type=f"{n:0200}") for n in range(500)]
    message: Any = {
        "types": pb.TypesUpdate(types=types),
        "progress": pb.ProgressBatch(progress=reports),
        "cancel_receipts": pb.CancelReceipts(received=held),
    }[kind]
    await worker.say(**{kind: message})
    told = (await worker.hear_of("too_large")).too_large
    assert (told.kind, told.limit) == (kind, LIMIT)
    await goes_on(worker, queue, new_jobs(2))
    await goes_on(other, queue, new_jobs(1, type="other"))


@proves("queue-api.WorkerPlane.rule.11")
async def test_a_heartbeat_that_is_too_big_is_told_of_and_renews_all_the_same(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    unknown = [pb.HeldJob(job_id=f"{n:0200}", token="t") for n in range(500)]
    named = [*unknown, pb.HeldJob(job_id=job.job_id, token=job.token)]
    await worker.say(heartbeat=pb.Heartbeat(held=named))
    told = (await worker.hear_of("too_large")).too_large
    assert (told.kind, told.limit) == ("heartbeat", LIMIT)
    answers = (await worker.hear_of("lease_answers")).lease_answers.answers
    renewed = [one.job_id for one in answers if one.status == pb.LEASE_STATUS_CURRENT]
    assert renewed == [job.job_id]


async def test_a_worker_that_names_many_times_what_it_can_hold_is_sent_away(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker, other = connect(), connect()
    brought = [pb.HeldJob(job_id=f"brought {n}", token="t") for n in range(5)]
    await worker.hello(held=brought)
    await other.hello()
    at_most = [pb.HeldJob(job_id=str(n), token="t") for n in range(HELD_AT_LEAST)]
    await worker.say(heartbeat=pb.Heartbeat(held=[*brought, *at_most]))
    while len((await worker.hear_of("lease_answers")).lease_answers.answers) <= len(brought):
        pass
    await worker.say(heartbeat=pb.Heartbeat(held=[*brought, *at_most, *brought]))
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "heartbeat.held: names 1010 jobs" in (failure.details() or "")
    await goes_on(other, queue, new_jobs(2))


async def test_beyond_what_the_transport_reads_the_call_ends_by_name_and_no_other(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker, other = connect(), connect()
    await worker.hello(types=[pb.HandlerType(type="mail")])
    await other.hello(types=[pb.HandlerType(type="other")])
    huge = pb.Outcome(job_id="j", token="t", result=b"x" * 5 * LIMIT)
    await worker.say(outcomes=pb.OutcomeBatch(outcomes=[huge]))
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(4 * LIMIT) in (failure.details() or "")
    await goes_on(other, queue, new_jobs(2, type="other"))


async def test_an_oversized_hello_is_refused_by_name(connect: Connect) -> None:
    worker = connect()
    tags = [f"{n:0100}" for n in range(1000)]
    await worker.say(hello=pb.Hello(session_id="s", worker_name="w", capacity=1, tags=tags))
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"is over the limit of {LIMIT}" in (failure.details() or "")


async def test_a_result_of_ten_megabytes_fails_its_job_and_keeps_the_session(
    roomy_plane: Any, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    queue, worker = roomy_plane.queue, connect(port=roomy_plane.port)
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    [ack] = await worker.settle(complete(job, b"x" * 10 * MIB))
    assert ack.state == JobState.DEAD_LETTER
    error = (await queue.get_job(job.job_id, namespace=namespace)).error
    assert error is not None
    assert (error.code, str(10 * MIB) in error.message) == (RESULT_NOT_STORABLE, True)
    await goes_on(worker, queue, new_jobs(2))


@pytest.fixture
async def stream_beside(
    roomy_plane: Any, new_jobs: NewJobs, namespace: str
) -> Callable[[], Awaitable[None]]:
    """A stream over the same connection, and whether it goes on."""
    client = GrpcQueue(f"127.0.0.1:{roomy_plane.port}", roomy_plane.token)
    stream = client.stream_jobs("beside", [], 10, namespace=namespace)

    async def check() -> None:
        [job] = new_jobs()
        await client.enqueue_job(job)
        async with asyncio.timeout(DEADLINE_S):
            assert [got.id for got in await anext(stream)] == [job.id]

    check.client = client  # type: ignore[attr-defined]
    await check()
    return check


@pytest.mark.parametrize(
    ("size", "field", "limit"),
    [
        (10 * MIB, "payload", MIB),
        (20 * MIB, "message", 16 * MIB),
        (65 * MIB, "message", 64 * MIB),
    ],
)
async def test_a_payload_that_is_too_large_is_refused_by_its_sizes(
    stream_beside: Any, new_jobs: NewJobs, size: int, field: str, limit: int
) -> None:
    client: GrpcQueue = stream_beside.client
    [job] = new_jobs(payload=b"x" * size)
    with pytest.raises(PayloadTooLarge) as caught:
        await client.enqueue_job(job)
    error = caught.value
    assert (error.field, error.limit) == (field, limit)
    assert size <= error.size < size + 1000
    await stream_beside()
    await client.close()


async def test_a_result_that_is_too_large_is_refused_by_name(
    stream_beside: Any, namespace: str
) -> None:
    client: GrpcQueue = stream_beside.client
    with pytest.raises(PayloadTooLarge) as caught:
        await client.complete_job("j", b"x" * 10 * MIB, namespace=namespace, token="t")
    assert (caught.value.field, caught.value.size) == ("result", 10 * MIB)
    await stream_beside()
    await client.close()
