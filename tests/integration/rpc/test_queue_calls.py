"""Every call of the gRPC Queue, through its client, on a real store."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.rpc.conftest import SMALL, TOKEN, Plane

from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain import errors
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService

NewJobs = Callable[..., list[Job]]


def full(namespace: str) -> Job:
    """A job with every field that a submitter may set."""
    job_id = f"jöb {uuid.uuid4().hex}"
    return Job(
        id=job_id,
        type="mail",
        payload=bytes(range(256)),
        content_type="text/plain",
        namespace=namespace,
        tags=frozenset({"eu", "größe=xl"}),
        priority=Priority.HIGH,
        created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        delay_s=3600.1,
        max_attempts=7,
        timeout_s=0.3,
        backoff=Backoff(BackoffStrategy.CUSTOM, 0.1, 2.3, 1.7, (0.1, 1.15)),
        correlation_id="trace",
        idempotency_key="key",
        dependency_mode=DependencyMode.CHAIN,
        # A resource's job has its uid as its id.
        resource=ResourceRef(uuid.uuid4().hex, job_id, "res", 3),
    )


async def test_a_submitted_job_arrives_whole_and_is_read_whole(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    [parent] = new_jobs()
    await client.enqueue_job(parent)
    sent = full(namespace)
    assert await client.enqueue_jobs([sent]) == [sent.id]
    stored = await queue.get_job(sent.id, namespace=namespace)
    for name in (
        "payload", "content_type", "tags", "priority", "created_at", "max_attempts", "timeout_s",
        "backoff", "correlation_id", "idempotency_key", "dependency_mode", "resource",
    ):  # fmt: skip
        assert getattr(stored, name) == getattr(sent, name), name
    assert stored.eligible_at is not None
    assert stored.eligible_at > datetime.now(UTC) + timedelta(seconds=3000)
    assert await client.get_job(sent.id, namespace=namespace) == stored


async def test_dependencies_and_idempotency_hold(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs
) -> None:
    [parent] = new_jobs(idempotency_key="once")
    [child] = new_jobs(depends_on=(parent.id,))
    await client.enqueue_jobs([parent, child])
    [repeat] = new_jobs(idempotency_key="once")
    assert await client.enqueue_job(repeat) == parent.id
    assert (await client.get_job(child.id, namespace=namespace)).waiting_for_dependencies


async def test_a_repeat_is_answered_though_the_namespace_is_full(plane: Plane) -> None:
    def job(key: str) -> Job:
        return Job(id=uuid.uuid4().hex, type="mail", namespace=SMALL, idempotency_key=key)

    once = Repeats(attempts=1)
    async with GrpcQueue(f"127.0.0.1:{plane.port}", TOKEN, repeats=once) as client:
        first = await client.enqueue_jobs([job("a"), job("b")])
        assert await client.enqueue_job(job("b")) == first[1]
        assert await client.enqueue_jobs([job("b"), job("a")]) == first[::-1]
        with pytest.raises(errors.QuotaExceeded):
            await client.enqueue_jobs([job("a"), job("c")])
        with pytest.raises(errors.QuotaExceeded):
            await client.enqueue_job(job("c"))


@pytest.mark.parametrize("key", ["k" * 300, "k\0"])
async def test_a_bad_key_is_named_though_the_namespace_is_full(plane: Plane, key: str) -> None:
    def job(key: str) -> Job:
        return Job(id=uuid.uuid4().hex, type="mail", namespace=SMALL, idempotency_key=key)

    once = Repeats(attempts=1)
    async with GrpcQueue(f"127.0.0.1:{plane.port}", TOKEN, repeats=once) as client:
        await client.enqueue_jobs([job("a"), job("b")])
        with pytest.raises(errors.InvalidArgument) as refused:
            await client.enqueue_jobs([job("a"), job(key)])
        assert refused.value.field == "jobs[1].idempotency_key"


async def test_what_became_of_a_job_is_read_as_it_is_stored(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    jobs = new_jobs(4, max_attempts=3)
    await client.enqueue_jobs(jobs)
    running = await queue.backend.dequeue_jobs("worker", [], 4, namespace=namespace)
    assert len(running) == 4
    done, failed, stopped, cancelled = jobs
    await client.complete_job(done.id, b"42", namespace=namespace)
    await client.fail_job(failed.id, "no", namespace=namespace)
    await client.stop_job(stopped.id, "enough", namespace=namespace)
    answer = await client.cancel_jobs(
        [], [cancelled.id, "nobody"], namespace=namespace, reason="why not"
    )
    assert answer.cancelled_job_ids == (cancelled.id,)
    assert answer.unknown_job_ids == ("nobody",)
    for job in jobs:
        over_grpc = await client.get_job(job.id, namespace=namespace)
        assert over_grpc == await queue.get_job(job.id, namespace=namespace)
    stats = await client.get_job_stats([], namespace=namespace)
    assert stats == await queue.get_job_stats([], namespace=namespace)
    assert stats.by_state[JobState.COMPLETED] == 1
    await client.acknowledge_cancellation(cancelled.id, True, namespace=namespace)
    assert (await client.get_job(cancelled.id, namespace=namespace)).state is JobState.STOPPED


async def test_the_calls_that_end_an_attempt(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    lost, again, reset = new_jobs(3)
    await client.enqueue_jobs([lost, again, reset])
    await queue.backend.dequeue_jobs("worker", [], 3, namespace=namespace)
    await client.mark_job_unknown_stopped(lost.id, "gone", namespace=namespace)
    await client.cancel_jobs([], [again.id], namespace=namespace)
    await client.stop_job_with_retry(again.id, "later", namespace=namespace)
    await client.reset_running_jobs(namespace=namespace)
    lost, again = [await client.get_job(job.id, namespace=namespace) for job in (lost, again)]
    assert (lost.state, lost.error_message) == (JobState.UNKNOWN_STOPPED, "gone")
    assert (again.state, again.error_message, again.retry_count) == (JobState.STOPPED, "later", 1)
    assert (await client.get_job(reset.id, namespace=namespace)).state is JobState.UNKNOWN_RETRY


async def test_maintenance(
    client: GrpcQueue, queue: QueueService, namespace: str, new_jobs: NewJobs
) -> None:
    done, other, lost = new_jobs(3)
    await client.enqueue_jobs([done, other, lost])
    await queue.backend.dequeue_jobs("a worker", [], 3, namespace=namespace)
    await client.complete_job(done.id, b"", namespace=namespace)
    await client.stop_job(other.id, "", namespace=namespace)
    assert await client.cleanup_expired_jobs(0.000_001, namespace=namespace) == 1
    assert await client.delete_jobs([], [other.id], namespace=namespace) == 1
    with pytest.raises(errors.JobNotFound):
        await client.get_job(other.id, namespace=namespace)
    await client.mark_worker_unresponsive("a worker")
    assert (await client.get_job(lost.id, namespace=namespace)).state is JobState.UNKNOWN_RETRY


async def test_of_submissions_at_once_each_has_its_own_answer(
    client: GrpcQueue, queue: QueueService, namespace: str
) -> None:
    """They share calls and transactions, and nothing that is wrong with one of them."""
    names = [uuid.uuid4().hex for _ in range(40)]
    jobs = [Job(id=name, type="mail", namespace=namespace) for name in names]
    await queue.enqueue_job(jobs[7])
    jobs[11] = replace(jobs[11], payload=bytes(2 * 1024 * 1024))
    jobs[13] = replace(jobs[13], id=names[12])
    jobs[17] = replace(jobs[17], depends_on=("nobody",))
    answers = await asyncio.gather(*map(client.enqueue_job, jobs), return_exceptions=True)
    wrong = {n: answers[n] for n in range(40) if isinstance(answers[n], BaseException)}
    assert {n: type(error) for n, error in wrong.items()} == {
        7: errors.DuplicateJob,
        11: errors.PayloadTooLarge,
        13: errors.DuplicateJob,
        17: errors.InvalidArgument,
    }
    assert [answers[n] for n in range(40) if n not in wrong] == [
        names[n] for n in range(40) if n not in wrong
    ]
    assert (await queue.get_job_stats((), namespace=namespace)).total_jobs == 37
