"""Checkpoints over the wire, message by message."""

from collections.abc import Awaitable, Callable
from typing import Any

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]
StartPlane = Callable[[], Awaitable[Any]]


async def store(worker: Any, *checkpoints: pb.Checkpoint) -> list[pb.CheckpointAck]:
    await worker.say(checkpoints=pb.CheckpointBatch(checkpoints=checkpoints))
    return list((await worker.hear_of("checkpoint_acks")).checkpoint_acks.acks)


def of(job: pb.Assignment, data: bytes, number: int = 1) -> pb.Checkpoint:
    return pb.Checkpoint(job_id=job.job_id, token=job.token, number=number, data=data)


async def hand_back(worker: Any, *jobs: pb.Assignment) -> None:
    """Does not wait for the answer, which the next assignment may overtake."""
    outcomes = [
        pb.Outcome(job_id=job.job_id, token=job.token, kind=pb.OUTCOME_KIND_HAND_BACK)
        for job in jobs
    ]
    await worker.say(outcomes=pb.OutcomeBatch(outcomes=outcomes))


async def test_a_checkpoint_is_acknowledged_and_comes_with_the_next_attempt(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    welcome = await worker.hello()
    assert welcome.max_checkpoint_bytes == 1024 * 1024
    await queue.enqueue_jobs(new_jobs(2))
    job, other = await worker.assignments(2)
    assert not job.HasField("checkpoint")
    acks = await store(worker, of(job, b"half", 7), of(other, b""))
    assert [(ack.job_id, ack.token, ack.number, ack.error_code) for ack in acks] == [
        (job.job_id, job.token, 7, ""),
        (other.job_id, other.token, 1, ""),
    ]
    await hand_back(worker, job, other)
    again = {one.job_id: one for one in await worker.assignments(2)}
    assert again[job.job_id].checkpoint == b"half"
    assert again[other.job_id].HasField("checkpoint")
    assert again[other.job_id].checkpoint == b""


async def test_a_checkpoint_after_the_job_went_to_another_worker_is_refused(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    first, second = connect(), connect()
    await first.hello(capacity=1)
    [job] = new_jobs()
    await queue.enqueue_job(job)
    [old] = await first.assignments(1)
    await store(first, of(old, b"old"))
    lost = Outcome(old.job_id, Event.LOSE, namespace=namespace, token=old.token)
    # Before the second worker asks for it: the first one has no room while it holds the job.
    [settled] = await queue.backend.settle([lost])
    assert settled.error is None
    await second.hello()
    [new] = await second.assignments(1)
    assert (new.job_id, new.checkpoint) == (old.job_id, b"old")
    [refused] = await store(first, of(old, b"late", 2))
    assert refused.error_code == StaleLease.code
    await store(second, of(new, b"new"))
    await hand_back(second, new)
    [again] = await second.assignments(1)
    assert again.checkpoint == b"new"


async def test_a_bad_checkpoint_is_answered_by_itself(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    acks = await store(
        worker,
        of(job, b"x", 0),
        pb.Checkpoint(job_id="", token=job.token, number=1),
        pb.Checkpoint(job_id=job.job_id, token="", number=1),
        of(job, b"good"),
    )
    assert [ack.error_code for ack in acks] == [
        InvalidArgument.code,
        InvalidArgument.code,
        StaleLease.code,
        "",
    ]


async def test_a_checkpoint_over_the_limit_keeps_the_session(
    start_plane: StartPlane, connect: Connect, new_jobs: NewJobs
) -> None:
    plane = await start_plane()
    plane.queue.backend._limits = plane.queue.backend._limits.__class__(checkpoint_bytes=8)
    worker = connect(plane.port)
    await worker.hello()
    await plane.queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    large, good = await store(worker, of(job, b"123456789"), of(job, b"12345678"))
    assert large.error_code == PayloadTooLarge.code
    assert "the limit of 8" in large.error_message
    assert good.error_code == ""


async def test_the_answer_tells_of_a_cancel(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    await queue.cancel_jobs([], [job.job_id], namespace=namespace)
    [ack] = await store(worker, of(job, b"x"))
    assert (ack.error_code, ack.cancel_requested, ack.cancel_forced) == ("", True, False)
