"""Each change over gRPC is told before and after, whatever its caller does."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.audited import Audited
from tests.integration.rpc.conftest import TOKEN, Plane
from tests.waiting import DEADLINE_S, until

from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import DuplicateJob, QueueError
from queue_operator.domain.job import Job
from queue_operator.queue.protocol import Queue
from queue_operator.queue.service import QueueService
from queue_operator.rpc.queue_calls import METHODS

NewJobs = Callable[..., list[Job]]
READ_ONLY = {"get", "list"}


def test_every_method_that_changes_something_is_audited() -> None:
    audited = {name for name, method in METHODS.items() if method.audited is not None}
    assert audited == {name for name, one in METHODS.items() if one.right.verb not in READ_ONLY}


async def test_a_line_says_who_did_what_to_how_many(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs, audited: Audited
) -> None:
    one, two = new_jobs(2)
    await client.enqueue_jobs([one, two])
    await client.cancel_jobs([], [one.id, two.id], namespace=namespace)
    await client.get_job(one.id, namespace=namespace)
    await client.delete_jobs([], [one.id], namespace=namespace)
    lines = audited.lines("result")
    told = [(line["operation"], line["verb"], line["count"]) for line in lines]
    assert told == [
        ("EnqueueJobs", "create", 2),
        ("CancelJobs", "update", 2),
        ("DeleteJobs", "delete", 1),
    ]
    assert lines[1]["jobs"] == [one.id, two.id]
    assert {(line["who"], line["namespace"], line["outcome"]) for line in lines} == {
        ("test", namespace, "OK")
    }
    assert [line["request_id"] for line in audited.lines("intent")] == [
        line["request_id"] for line in lines
    ]
    assert len({line["request_id"] for line in lines}) == 3


async def test_a_submission_names_its_jobs_before_and_counts_those_that_were_stored(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs, audited: Audited
) -> None:
    one, two = new_jobs(2)
    await client.enqueue_jobs([one, two])
    with pytest.raises(DuplicateJob):
        await client.enqueue_jobs([replace(one, payload=b"another")])
    with pytest.raises(DuplicateJob):
        await client.enqueue_job(replace(two, payload=b"another"))
    told = [
        (line["stage"], line.get("jobs", line.get("job")), line.get("outcome"), line.get("count"))
        for line in audited.lines()
    ]
    assert told == [
        ("intent", [one.id, two.id], None, None),
        ("result", [one.id, two.id], "OK", 2),
        ("intent", [one.id], None, None),
        ("result", [one.id], "DUPLICATE", None),
        ("intent", two.id, None, None),
        ("result", two.id, "DUPLICATE", None),
    ]


Outcome = Callable[[Queue, str, str], Awaitable[Any]]
OUTCOMES: dict[str, Outcome] = {
    "CompleteJob": lambda queue, job, ns: queue.complete_job(job, b"", namespace=ns),
    "FailJob": lambda queue, job, ns: queue.fail_job(job, "m", namespace=ns),
    "StopJob": lambda queue, job, ns: queue.stop_job(job, "m", namespace=ns),
    "StopJobWithRetry": lambda queue, job, ns: queue.stop_job_with_retry(job, "m", namespace=ns),
    "MarkJobUnknownStopped": lambda queue, job, ns: queue.mark_job_unknown_stopped(
        job, "m", namespace=ns
    ),
    "AcknowledgeCancellation": lambda queue, job, ns: queue.acknowledge_cancellation(
        job, True, namespace=ns
    ),
}


@pytest.mark.parametrize("operation", OUTCOMES)
async def test_an_outcome_that_somebody_sets_is_told(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs, operation: str, audited: Audited
) -> None:
    [job] = new_jobs()
    await client.enqueue_job(job)
    try:
        await OUTCOMES[operation](client, job.id, namespace)
        outcome = "OK"
    except QueueError as error:
        outcome = error.code
    told = [line for line in audited.lines() if line["operation"] == operation]
    assert [(line["stage"], line["job"], line["token"]) for line in told] == [
        ("intent", job.id, "none"),
        ("result", job.id, "none"),
    ]
    assert told[1]["outcome"] == outcome


async def test_a_stream_is_told_with_the_number_of_its_jobs(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs, audited: Audited
) -> None:
    await client.enqueue_jobs(new_jobs(3))
    left = 3
    async with client.stream_jobs("me", [], 5, namespace=namespace) as stream:
        async for jobs in stream:
            left -= len(jobs)
            if not left:
                break

    async def is_over() -> bool:
        await client.get_job_stats([], namespace=namespace)
        return any(line["operation"] == "StreamJobs" for line in audited.lines("result"))

    await until(is_over)
    before, after = (line for line in audited.lines() if line["operation"] == "StreamJobs")
    assert before["assignee_id"] == after["assignee_id"] == "me"
    assert after["count"] == 3
    assert after["outcome"] in ("OK", "LEFT")


class Gate:
    """Cancels that reach the queue wait until it is opened."""

    def __init__(self, queue: QueueService, monkeypatch: pytest.MonkeyPatch) -> None:
        self._opened, self._came = asyncio.Event(), asyncio.Semaphore(0)
        self._cancel = queue.cancel_jobs
        monkeypatch.setattr(queue, "cancel_jobs", self._wait)

    async def _wait(self, *args: Any, **options: Any) -> Any:
        self._came.release()
        await self._opened.wait()
        return await self._cancel(*args, **options)

    def open(self) -> None:
        self._opened.set()

    async def left_by(self, client: GrpcQueue, jobs: list[Job]) -> None:
        """A call for each job has reached the queue, and is cancelled."""
        calls = [
            asyncio.create_task(client.cancel_jobs([], [job.id], namespace=job.namespace))
            for job in jobs
        ]
        async with asyncio.timeout(DEADLINE_S):
            for _ in calls:
                await self._came.acquire()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


@pytest.fixture
def gate(queue: QueueService, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(queue, monkeypatch)


async def test_who_cancels_a_call_does_not_escape_the_audit(
    client: GrpcQueue, queue: QueueService, gate: Gate, new_jobs: NewJobs, audited: Audited
) -> None:
    jobs = new_jobs(60)
    await queue.enqueue_jobs(jobs)
    await gate.left_by(client, jobs)
    gate.open()

    async def all_are_told() -> bool:
        # A job is cancelled a moment before its line.
        stats = await queue.get_job_stats((), namespace=jobs[0].namespace)
        return stats.stopped_jobs == len(audited.lines("result")) == 60

    await until(all_are_told)
    told = audited.lines("result")
    assert [(line["outcome"], line["count"]) for line in told] == [("OK", 1)] * 60
    assert {line["request_id"] for line in told} == {
        line["request_id"] for line in audited.lines("intent")
    }


async def test_a_change_that_the_servers_end_cuts_off_is_told_as_unknown(
    plane: Plane, client: GrpcQueue, gate: Gate, new_jobs: NewJobs, audited: Audited
) -> None:
    await gate.left_by(client, new_jobs())
    await plane.server.stop(0.01)
    assert [line["outcome"] for line in audited.lines("result")] == ["UNKNOWN"]


async def test_changes_without_a_caller_are_calls_under_way(
    start_plane: Callable[..., Awaitable[Plane]],
    monkeypatch: pytest.MonkeyPatch,
    new_jobs: NewJobs,
    namespace: str,
) -> None:
    plane = await start_plane(calls_in_flight=1)
    gate = Gate(plane.queue, monkeypatch)
    async with GrpcQueue(f"127.0.0.1:{plane.port}", TOKEN, timeout_s=1.0) as client:
        await gate.left_by(client, new_jobs())
        with pytest.raises(QueueError, match="calls that this server answers at a time"):
            await client.get_job_stats([], namespace=namespace)
        gate.open()
