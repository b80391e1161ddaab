"""A session lives as long as its stream, and a stream that is dead is found out by both ends.

A firewall that forgets a connection is played by a proxy that stops passing bytes on: both ends
think that the connection is there.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from tests.chaos.proxy import Proxy
from tests.programs import started
from tests.waiting import DEADLINE_S, until

from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.rpc.queue_calls import METHODS
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import queue_pb2 as queue_pb
from queue_operator.wire.v1 import worker_pb2 as pb
from queue_operator.wire.v1.queue_pb2_grpc import QueueStub

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]
KEEPALIVE_S = 1.5
NOTICED_S = KEEPALIVE_S * 4 / 3
SLACK_S = 4.0
"""What a slow machine may add."""

HANDLERS = """
from queue_operator.worker import Worker

worker = Worker()

@worker.handler("quick")
def quick(ctx):
    return "done"

@worker.handler("gated")
def gated(ctx, payload: str):
    open(payload + ".begun", "w").close()
    # A pipe: this waits until the test opens the other end.
    open(payload).close()
    return "done"
"""


class Firewall(Proxy):
    """What the one end does is kept from the other: not even the end of a connection passes."""

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            await super()._pass(source, target, lost)
        if lost.is_set():
            await self._never.wait()


@pytest.fixture
async def lively(start_plane: Callable[..., Awaitable[Any]]) -> Any:
    return await start_plane(keepalive_s=KEEPALIVE_S)


def sessions(queue: QueueService) -> set[str]:
    return {usage.spec.assignee_id for usage in queue.usage()}


async def seconds_until(ask: Callable[[], Awaitable[bool]]) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(ask)
    return loop.time() - began


@proves("queue-api.WorkerPlane.rule.12", "queue-api.WorkerPlane.rule.13")
async def test_the_server_ends_the_session_of_a_dead_stream_and_no_other(
    lively: Any, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    queue: QueueService = lively.queue
    async with Firewall(lambda: ("127.0.0.1", lively.port)) as proxy:
        lost, idle = connect(port=proxy.port), connect(port=lively.port)
        await lost.hello()
        await queue.enqueue_jobs(new_jobs(1))
        [job] = await lost.assignments(1)
        await idle.hello(types=[pb.HandlerType(type="other")])
        proxy.half_open()

        async def gone() -> bool:
            await queue.ping()
            return lost.session_id not in sessions(queue)

        assert await seconds_until(gone) < NOTICED_S + SLACK_S
        # Nothing is taken from it yet: it may come back within its lease.
        stored = await queue.get_job(job.job_id, namespace=namespace)
        assert stored.state is JobState.RUNNING
        # The one beside it never said a word, and lives: its stream does.
        assert sessions(queue) == {idle.session_id}
        await queue.enqueue_jobs(new_jobs(1, type="other"))
        await idle.assignments(1)
        back = connect(port=proxy.port, session_id=lost.session_id)
        await back.hello(held=[pb.HeldJob(job_id=job.job_id, token=job.token)])
        answers = (await back.hear_of("lease_answers")).lease_answers.answers
        assert [answer.status for answer in answers] == [pb.LEASE_STATUS_CURRENT]


@proves("queue-api.WorkerPlane.rule.12", "queue-api.WorkerPlane.rule.13")
async def test_a_worker_whose_stream_died_is_back_with_what_it_runs(
    lively: Any, new_jobs: NewJobs, namespace: str, tmp_path: Path
) -> None:
    queue: QueueService = lively.queue
    (tmp_path / "lively_jobs.py").write_text(HANDLERS)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with (
        Firewall(lambda: ("127.0.0.1", lively.port)) as proxy,
        started(
            sys.executable, "-m", "queue_operator.worker.main", "lively_jobs:worker",
            PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
            QUEUE_OPERATOR_SERVER=f"127.0.0.1:{proxy.port}",
            QUEUE_OPERATOR_TOKEN_FILE=str(token_file(tmp_path, lively.token)),
            QUEUE_OPERATOR_NAMESPACE=namespace,
            QUEUE_OPERATOR_HEALTH_PORT="0",
        ),
    ):  # fmt: skip
        content = {"payload": f'"{gate}"'.encode(), "content_type": "application/json"}
        [held] = new_jobs(type="gated", **content)
        await queue.enqueue_job(held)

        async def runs() -> bool:
            await queue.ping()
            return (tmp_path / "gate.begun").exists()

        await until(runs)
        proxy.half_open()
        # Only a connection of its own making can bring it this one.
        [quick] = new_jobs(type="quick")
        await queue.enqueue_job(quick)

        async def done() -> bool:
            stored = await queue.get_job(quick.id, namespace=namespace)
            return stored.state is JobState.COMPLETED

        # 3.4 seconds of silence and 1.6 of waiting, and the reconnect.
        assert await seconds_until(done) < 6 + SLACK_S
        gate.write_text("")

        async def ended() -> bool:
            stored = await queue.get_job(held.id, namespace=namespace)
            return stored.state is JobState.COMPLETED

        await until(ended)
        assert (await queue.get_job(held.id, namespace=namespace)).attempt == 1


def token_file(folder: Path, token: str) -> Path:
    file = folder / "token"
    file.write_text(token)
    return file


async def test_both_ends_of_a_stream_of_the_queue_find_out(lively: Any, namespace: str) -> None:
    queue: QueueService = lively.queue
    async with Firewall(lambda: ("127.0.0.1", lively.port)) as proxy:
        client = GrpcQueue(f"127.0.0.1:{proxy.port}", lively.token, keepalive_s=KEEPALIVE_S)
        stream = client.stream_jobs("me", [], 1, namespace=namespace)
        async with stream:
            step = asyncio.ensure_future(anext(stream))
            proxy.half_open()

            async def gone() -> bool:
                await queue.ping()
                return not queue.usage()

            assert await seconds_until(gone) < NOTICED_S + SLACK_S
            async with asyncio.timeout(KEEPALIVE_S * 1.5 + SLACK_S):
                with pytest.raises(Unavailable, match="the stream was cut"):
                    await step
        # The next call makes a connection that works.
        assert (await client.get_job_stats([], namespace=namespace)).total_jobs == 0
        await client.close()


@proves("queue-api.WorkerPlane.rule.13")
async def test_a_session_that_can_push_no_more_ends_and_does_not_go_on_listening(
    lively: Any, connect: Connect, new_jobs: NewJobs, namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    queue: QueueService = lively.queue
    worker = connect(port=lively.port)
    await worker.hello()

    def broken(*arguments: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("queue_operator.rpc.session.Session._assignment_messages", broken)
    [job] = new_jobs()
    await queue.enqueue_job(job)
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert "a fault" not in (failure.details() or "")
    monkeypatch.undo()

    async def back() -> bool:
        stored = await queue.get_job(job.id, namespace=namespace)
        return stored.state is JobState.FAILED_RETRY

    await until(back)
    assert sessions(queue) == set()


# What is asked of the queue by each unary call, by its name there.
CALLS: dict[str, tuple[str, Message]] = {
    "EnqueueJob": ("enqueue_job", queue_pb.EnqueueJobRequest(job=queue_pb.Job(id="j", type="t"))),
    "EnqueueJobs": (
        "enqueue_jobs",
        queue_pb.EnqueueJobsRequest(jobs=[queue_pb.Job(id="j", type="t")]),
    ),
    "EnqueueEach": (
        "enqueue_job",
        queue_pb.EnqueueEachRequest(jobs=[queue_pb.Job(id="j", type="t")]),
    ),
    "CompleteJob": ("complete_job", queue_pb.CompleteJobRequest(job_id="j")),
    "FailJob": ("fail_job", queue_pb.FailJobRequest(job_id="j", error_message="m")),
    "StopJob": ("stop_job", queue_pb.StopJobRequest(job_id="j")),
    "StopJobWithRetry": ("stop_job_with_retry", queue_pb.StopJobWithRetryRequest(job_id="j")),
    "MarkJobUnknownStopped": (
        "mark_job_unknown_stopped",
        queue_pb.MarkJobUnknownStoppedRequest(job_id="j"),
    ),
    "AcknowledgeCancellation": (
        "acknowledge_cancellation",
        queue_pb.AcknowledgeCancellationRequest(job_id="j"),
    ),
    "ReturnJobs": ("give_back", queue_pb.ReturnJobsRequest()),
    "CancelJobs": ("cancel_jobs", queue_pb.CancelJobsRequest(job_ids=["j"])),
    "SuspendJobs": ("suspend_jobs", queue_pb.SuspendJobsRequest(job_ids=["j"])),
    "GetJob": ("get_job", queue_pb.GetJobRequest(job_id="j")),
    "GetJobStats": ("get_job_stats", queue_pb.GetJobStatsRequest()),
    "DeleteJobs": ("delete_jobs", queue_pb.DeleteJobsRequest(job_ids=["j"])),
    "CleanupExpiredJobs": (
        "cleanup_expired_jobs",
        queue_pb.CleanupExpiredJobsRequest(ttl=Duration(seconds=1)),
    ),
    "ResetRunningJobs": ("reset_running_jobs", queue_pb.ResetRunningJobsRequest()),
    "MarkWorkerUnresponsive": (
        "mark_worker_unresponsive",
        queue_pb.MarkWorkerUnresponsiveRequest(assignee_id="w"),
    ),
}


def test_every_unary_call_is_in_the_list() -> None:
    assert set(CALLS) == set(METHODS)


class Endless:
    """A call of the queue that never ends by itself."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments: object, **named: object) -> None:
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended.set()


READS = ("GetJob", "GetJobStats")
"""All others change something, and are brought to their end once they have begun."""


@proves("queue-api.WorkerPlane.rule.5")
@pytest.mark.parametrize("name", CALLS)
async def test_a_read_whose_deadline_has_passed_ends_in_the_queue_and_a_change_goes_on(
    lively: Any, metadata: Any, namespace: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked, request = CALLS[name]
    endless = Endless()
    monkeypatch.setattr(lively.queue, asked, endless)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{lively.port}") as channel:
        call = getattr(QueueStub(channel), name)(request, timeout=0.5, metadata=metadata(namespace))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert endless.begun.is_set()
        if name in READS:
            await asyncio.wait([asyncio.ensure_future(endless.ended.wait())], timeout=DEADLINE_S)
            assert endless.ended.is_set()
        else:
            # A read that ends after it shows that the server had its turn.
            with pytest.raises(grpc.aio.AioRpcError):
                await QueueStub(channel).GetJob(
                    queue_pb.GetJobRequest(job_id="none"), metadata=metadata(namespace)
                )
            assert not endless.ended.is_set()


@proves("queue-api.WorkerPlane.rule.5")
@pytest.mark.parametrize("how", ["deadline", "cancelled"])
async def test_the_deadline_is_that_of_whoever_calls_our_client(
    lively: Any, namespace: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    endless = Endless()
    monkeypatch.setattr(lively.queue, "get_job", endless)
    client = GrpcQueue(f"127.0.0.1:{lively.port}", lively.token)
    call = client.within(0.2 if how == "deadline" else 20.0).get_job("j", namespace=namespace)
    asked = asyncio.ensure_future(call)
    await asyncio.wait_for(endless.begun.wait(), DEADLINE_S)
    if how == "deadline":
        with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
            await asked
    else:
        asked.cancel()
    await asyncio.wait_for(endless.ended.wait(), DEADLINE_S)
    await client.close()
