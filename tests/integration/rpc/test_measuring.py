"""Calls by rate, errors and duration, as a real server counts them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import grpc
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from tests.integration.rpc.conftest import TOKEN, Plane, RawWorker, StartPlane
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key
from tests.waiting import DEADLINE_S

from queue_operator.auth.static import StaticAuthenticator
from queue_operator.domain.job import Job
from queue_operator.metrics.doors import GrpcFigures
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import GrpcSettings, Settings
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1.queue_pb2_grpc import QueueStub

CALLS = "queueoperator_grpc_calls_total"
SECONDS = "queueoperator_grpc_call_seconds"


@dataclass
class Counted:
    """A server that counts, on the queue of `plane`."""

    plane: Plane
    registry: CollectorRegistry
    server: WorkerPlaneServer
    channel: grpc.aio.Channel
    port: int

    def calls(self) -> dict[tuple[str, str], float]:
        """By method and code."""
        return {
            (labels["method"], labels["code"]): value
            for (name, given), value in exposition.of(self.registry).items()
            if name == CALLS and (labels := dict(given))
        }

    async def until(self, method: str, code: str) -> None:
        """A call's end may be heard of before it was counted."""
        async with asyncio.timeout(DEADLINE_S):
            while (method, code) not in self.calls():
                await self.plane.queue.ping()


@pytest.fixture
async def counted(start_plane: StartPlane) -> AsyncIterator[Counted]:
    plane, registry = await start_plane(), CollectorRegistry()
    server = WorkerPlaneServer(
        plane.queue,
        StaticAuthenticator({"test": SecretStr(TOKEN)}),
        Settings(grpc=GrpcSettings(host="127.0.0.1", port=0)),
        figures=GrpcFigures(registry),
    )
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Counted(plane, registry, server, channel, port)
    await server.stop(0.5)


@pytest.fixture
def ours(namespace: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {TOKEN}"), ("namespace", namespace))


async def test_unary_calls_are_counted_with_how_they_ended_and_how_long_they_took(
    counted: Counted, ours: tuple[tuple[str, str], ...]
) -> None:
    queue = QueueStub(counted.channel)
    for _ in range(2):
        await queue.GetJobStats(pb.GetJobStatsRequest(), metadata=ours)
    for metadata in (ours, (("authorization", "Bearer x"),)):
        with pytest.raises(grpc.aio.AioRpcError):
            await queue.GetJob(pb.GetJobRequest(job_id="absent"), metadata=metadata)
    await counted.until("Queue/GetJob", "unauthenticated")
    await counted.until("Queue/GetJob", "not_found")
    assert counted.calls() == {
        ("Queue/GetJobStats", "ok"): 2,
        ("Queue/GetJob", "not_found"): 1,
        ("Queue/GetJob", "unauthenticated"): 1,
    }
    found = exposition.of(counted.registry)
    assert found[key(f"{SECONDS}_count", method="Queue/GetJob")] == 2
    assert 0 < found[key(f"{SECONDS}_sum", method="Queue/GetJobStats")] < DEADLINE_S


async def test_methods_that_are_none_share_one_name(
    counted: Counted, ours: tuple[tuple[str, str], ...]
) -> None:
    for method in ("/queueoperator.v1.Queue/Made-Up-4711", "/secret/Name"):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await counted.channel.unary_unary(method)(b"", metadata=ours)  # type: ignore[arg-type]
        assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await counted.until("unmatched", "unimplemented")
    assert counted.calls() == {("unmatched", "unimplemented"): 2}
    assert f"{SECONDS}_count" not in {name for name, _ in exposition.of(counted.registry)}


async def test_a_session_is_one_call_however_many_messages_it_carries(
    counted: Counted, connect: Callable[..., RawWorker], new_jobs: Callable[..., list[Job]]
) -> None:
    worker = connect(port=counted.port)
    await worker.hello(capacity=20)
    await counted.plane.queue.enqueue_jobs(new_jobs(20))
    assert len(await worker.assignments(20)) == 20
    # An open stream is none that ended.
    assert counted.calls() == {}
    worker.call.cancel()
    await counted.until("WorkerPlane/Session", "cancelled")
    assert counted.calls() == {("WorkerPlane/Session", "cancelled"): 1}
    assert f"{SECONDS}_count" not in {name for name, _ in exposition.of(counted.registry)}


async def test_a_session_that_is_refused_or_says_goodbye_has_its_code(
    counted: Counted, connect: Callable[..., RawWorker]
) -> None:
    stranger = connect(port=counted.port, token="x")
    assert (await stranger.failure()).code() is grpc.StatusCode.UNAUTHENTICATED
    worker = connect(port=counted.port)
    await worker.hello()
    await counted.server.stop(5.0)
    await counted.until("WorkerPlane/Session", "ok")
    await counted.until("WorkerPlane/Session", "unauthenticated")


async def test_a_call_that_nobody_waits_for_any_more_has_passed_its_deadline(
    counted: Counted, ours: tuple[tuple[str, str], ...]
) -> None:
    stream = QueueStub(counted.channel).StreamJobs(
        pb.StreamJobsRequest(assignee_id="w", max_assigned_jobs=1), metadata=ours, timeout=0.5
    )
    assert isinstance(stream, grpc.aio.UnaryStreamCall)
    with pytest.raises(grpc.aio.AioRpcError):
        await stream.read()
    await counted.until("Queue/StreamJobs", "deadline_exceeded")
