"""A session that has come by the token of another session's job, message by message."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.integration.rpc.conftest import Plane

from queue_operator.backends.protocol import JobLogs
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]

KINDS = [
    pb.OUTCOME_KIND_COMPLETE,
    pb.OUTCOME_KIND_FAIL,
    pb.OUTCOME_KIND_HAND_BACK,
    pb.OUTCOME_KIND_ACK_EXECUTING,
    pb.OUTCOME_KIND_ACK_UNKNOWN,
]


async def _two(queue: QueueService, connect: Connect, new_jobs: NewJobs) -> tuple[Any, Any, Any]:
    """The session that runs a job, another one, and the job."""
    mine, theirs = connect(), connect()
    await mine.hello()
    await queue.enqueue_jobs(new_jobs(1))
    [job] = await mine.assignments(1)
    await theirs.hello()
    return mine, theirs, job


def _outcome(job: Any, kind: Any) -> pb.Outcome:
    error = pb.ErrorInfo(message="x") if kind == pb.OUTCOME_KIND_FAIL else None
    return pb.Outcome(job_id=job.job_id, token=job.token, kind=kind, error=error)


@pytest.mark.parametrize("kind", KINDS)
async def test_its_outcome_is_stale_and_the_owners_counts(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str, kind: Any
) -> None:
    mine, theirs, job = await _two(queue, connect, new_jobs)
    if kind in (pb.OUTCOME_KIND_ACK_EXECUTING, pb.OUTCOME_KIND_ACK_UNKNOWN):
        await queue.cancel_jobs([], [job.job_id], namespace=namespace)
    before = await queue.get_job(job.job_id, namespace=namespace)
    [ack] = await theirs.settle(_outcome(job, kind))
    assert (ack.job_id, ack.token, ack.error_code) == (job.job_id, job.token, StaleLease.code)
    assert await queue.get_job(job.job_id, namespace=namespace) == before
    [ack] = await mine.settle(_outcome(job, kind))
    assert ack.error_code == ""


async def test_nothing_else_that_it_says_of_the_job_is_heard(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    _, theirs, job = await _two(queue, connect, new_jobs)
    names = {"job_id": job.job_id, "token": job.token}
    line = pb.LogLine(**names, number=1, level="INFO", message="x")
    line.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    await theirs.say(logs=pb.LogBatch(lines=[line]))
    await theirs.say(
        progress=pb.ProgressBatch(progress=[pb.Progress(**names, percent=5, message="")])
    )
    await theirs.say(heartbeat=pb.Heartbeat(held=[pb.HeldJob(**names)]))
    [answer] = (await theirs.hear_of("lease_answers")).lease_answers.answers
    assert (answer.token, answer.status) == (job.token, pb.LEASE_STATUS_TAKEN_OVER)
    checkpoint = pb.Checkpoint(**names, number=1, data=b"x")
    await theirs.say(checkpoints=pb.CheckpointBatch(checkpoints=[checkpoint]))
    [ack] = (await theirs.hear_of("checkpoint_acks")).checkpoint_acks.acks
    assert ack.error_code == StaleLease.code
    child = pb.Spawn(parent_id=job.job_id, token=job.token, key="1", job=pb.ChildJob(type="c"))
    await theirs.say(spawns=pb.SpawnBatch(spawns=[child]))
    [spawned] = (await theirs.hear_of("spawn_answers")).spawn_answers.answers
    assert spawned.error_code == StaleLease.code
    # What nobody is answered is stored when the queue is stopped.
    await queue.stop()
    stored = await queue.backend.get_job(job.job_id, namespace=namespace)
    assert stored.progress is None
    book = queue.backend
    assert isinstance(book, JobLogs)
    assert await book.job_log(job.job_id, namespace=namespace) == []


async def test_what_it_brings_along_in_its_hello_is_taken_over_by_nobody(
    plane: Plane, connect: Connect, new_jobs: NewJobs
) -> None:
    mine = connect()
    await mine.hello()
    await plane.queue.enqueue_jobs(new_jobs(1))
    [job] = await mine.assignments(1)
    theirs = connect()
    await theirs.hello(held=[pb.HeldJob(job_id=job.job_id, token=job.token)])
    [answer] = (await theirs.hear_of("lease_answers")).lease_answers.answers
    assert answer.status == pb.LEASE_STATUS_TAKEN_OVER
    [held] = await plane.queue.backend.leased([mine.session_id, theirs.session_id])
    assert held.assignee_id == mine.session_id


async def test_a_session_that_comes_back_on_another_replica_is_heard(
    queue: QueueService, start_plane: Any, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(2))
    goes_on, _ = await worker.assignments(2)
    other = await start_plane()
    again = connect(other.port, session_id=worker.session_id)
    await again.hello(held=[pb.HeldJob(job_id=goes_on.job_id, token=goes_on.token)])
    [answer] = (await again.hear_of("lease_answers")).lease_answers.answers
    assert answer.status == pb.LEASE_STATUS_CURRENT
    [ack] = await again.settle(_outcome(goes_on, pb.OUTCOME_KIND_COMPLETE))
    assert ack.error_code == ""
