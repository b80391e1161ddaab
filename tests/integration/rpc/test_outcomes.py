"""Outcomes that come twice, too late, or for jobs that were never the worker's."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import JobNotFound, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]


def complete(job: pb.Assignment, result: bytes = b"") -> pb.Outcome:
    return pb.Outcome(
        job_id=job.job_id, token=job.token, kind=pb.OUTCOME_KIND_COMPLETE, result=result
    )


async def lose(queue: QueueService, job: pb.Assignment, namespace: str) -> None:
    outcome = Outcome(job.job_id, Event.LOSE, namespace=namespace, token=job.token)
    [settled] = await queue.backend.settle([outcome])
    assert settled.error is None


async def completions(queue: QueueService, job: pb.Assignment, namespace: str) -> int:
    """How often the job has completed."""
    assert isinstance(queue.backend, PostgresBackend)
    history = await queue.backend.get_history(job.job_id, namespace=namespace)
    return sum(one.after is JobState.COMPLETED for one in history.transitions)


async def test_an_outcome_that_comes_twice_counts_once(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs())
    [job] = await worker.assignments(1)
    # In one batch, and again after its answer was lost; what it says then does not matter.
    acks = await worker.settle(complete(job, b"1"), complete(job, b"2"))
    acks += await worker.settle(complete(job, b"3"))
    assert [(ack.state, ack.error_code) for ack in acks] == [(JobState.COMPLETED, "")] * 3
    stored = await queue.get_job(job.job_id, namespace=namespace)
    assert (stored.result, await completions(queue, job, namespace)) == (b"1", 1)


@proves("queue-api.WorkerPlane.rule.6")
async def test_a_failure_arrives_with_all_that_the_worker_says_of_it(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs())
    [job] = await worker.assignments(1)
    said = pb.ErrorInfo(
        category=pb.ERROR_CATEGORY_SYSTEM,
        code="DISK_FULL",
        message="no room",
        stack_trace="in main",
        context=[pb.ContextEntry(key="disk", value="sda")],
    )
    failure = pb.Outcome(
        job_id=job.job_id,
        token=job.token,
        kind=pb.OUTCOME_KIND_FAIL,
        error=said,
        retry_after=Duration(seconds=3600),
    )
    [ack] = await worker.settle(failure)
    assert (ack.state, ack.error_code) == (JobState.FAILED_RETRY, "")
    stored = await queue.get_job(job.job_id, namespace=namespace)
    assert stored.error is not None
    assert (stored.error.category, stored.error.code) == (ErrorCategory.SYSTEM, "DISK_FULL")
    assert (stored.error.message, stored.error.stack_trace) == ("no room", "in main")
    assert dict(stored.error.context) == {"disk": "sda"}
    assert stored.eligible_at is not None
    assert stored.last_retry_at is not None
    assert stored.eligible_at - stored.last_retry_at == timedelta(hours=1)


async def test_an_outcome_of_a_lost_job_counts_until_somebody_claims_it(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    # Room for one: what is lost does not come back to it while it holds the other.
    await worker.hello(capacity=2)
    await queue.enqueue_jobs(new_jobs(2))
    late, stale = await worker.assignments(2)
    await lose(queue, late, namespace)
    [ack] = await worker.settle(complete(late, b"late"))
    assert (ack.state, ack.error_code) == (JobState.COMPLETED, "")
    await lose(queue, stale, namespace)
    second = connect()
    await second.hello()
    # It goes to whichever of the two has room first.
    new = None
    while new is None:
        for one in (worker, second):
            jobs = await queue.get_job(stale.job_id, namespace=namespace)
            if jobs.state is JobState.RUNNING and jobs.assignee_id == one.session_id:
                [new] = await one.assignments(1)
                holder = one
                break
    [refused] = await worker.settle(complete(stale, b"stale"))
    assert refused.error_code == StaleLease.code
    [ack] = await holder.settle(complete(new, b"new"))
    assert ack.state == JobState.COMPLETED
    assert (await queue.get_job(stale.job_id, namespace=namespace)).result == b"new"


async def test_an_outcome_for_a_job_that_was_never_assigned_harms_nobody(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    first, second = connect(), connect()
    await first.hello(capacity=1)
    await second.hello(capacity=1)
    waiting, *_ = jobs = new_jobs(3)
    await queue.enqueue_jobs(jobs)
    [mine] = await first.assignments(1)
    [theirs] = await second.assignments(1)
    guessed = pb.Assignment(job_id=theirs.job_id, token=mine.token)
    nobody = pb.Assignment(job_id="nobody", token=mine.token)
    never = pb.Assignment(job_id=jobs[-1].id, token=mine.token)
    acks = await first.settle(complete(guessed), complete(nobody), complete(never))
    assert [ack.error_code for ack in acks] == [StaleLease.code, JobNotFound.code, StaleLease.code]
    [ack] = await second.settle(complete(theirs, b"theirs"))
    assert ack.state == JobState.COMPLETED
    assert (await queue.get_job(mine.job_id, namespace=namespace)).state is JobState.RUNNING
    assert waiting.id in {mine.job_id, theirs.job_id}


async def test_where_little_may_wait_for_the_store_all_outcomes_come_through(
    start_plane: Callable[..., Any], connect: Connect, new_jobs: NewJobs
) -> None:
    plane = await start_plane(backlog_bytes=1)
    workers = [connect(plane.port), connect(plane.port)]
    for number, worker in enumerate(workers):
        await worker.hello(capacity=3, worker_name=f"w{number}")
    await plane.queue.enqueue_jobs(new_jobs(6))
    held = [await worker.assignments(3) for worker in workers]
    for worker, jobs in zip(workers, held, strict=True):
        for job in jobs:
            await worker.say(outcomes=pb.OutcomeBatch(outcomes=[complete(job)]))
    for worker in workers:
        answers = [(await worker.hear_of("outcome_acks")).outcome_acks for _ in range(3)]
        assert [ack.state for answer in answers for ack in answer.acks] == [JobState.COMPLETED] * 3
