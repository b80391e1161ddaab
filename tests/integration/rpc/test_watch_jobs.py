"""WatchJobs: jobs as they change, over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import pytest
from pydantic import SecretStr
from tests.integration.rpc.conftest import TOKEN, Plane, StartPlane
from tests.waiting import DEADLINE_S

from queue_operator.auth.static import StaticAuthenticator
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Job
from queue_operator.domain.views import Phase
from queue_operator.rpc import server
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import GrpcSettings, Settings
from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.sqlite import SqliteStore
from queue_operator.testing.store import Store
from queue_operator.wire.status import ERROR_CODE_KEY
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1.queue_pb2_grpc import QueueStub

OURS = (("authorization", f"Bearer {TOKEN}"),)


@pytest.fixture(params=["postgres", "sqlite", "memory"])
async def plane(request: pytest.FixtureRequest, start_plane: StartPlane) -> AsyncIterator[Plane]:
    """On each of the stores."""
    stores: dict[str, Callable[[], Store]] = {"sqlite": SqliteStore, "memory": MemoryStore}
    if request.param not in stores:
        yield await start_plane()
        return
    store = stores[request.param]()
    yield await start_plane(backend=await store.open())
    await store.close()


@pytest.fixture
async def stub(plane: Plane) -> AsyncIterator[QueueStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
        yield QueueStub(channel)


def watched(stub: QueueStub, namespace: str, **wish: object) -> AsyncIterator[pb.JobEventMessage]:
    call = stub.WatchJobs(
        pb.WatchJobsRequest(**wish),  # type: ignore[arg-type]
        metadata=(*OURS, ("namespace", namespace)),
        timeout=DEADLINE_S,
    )
    return aiter(call)  # type: ignore[arg-type]


async def test_jobs_are_followed_to_their_end(
    plane: Plane, stub: QueueStub, namespace: str
) -> None:
    await plane.queue.enqueue_jobs([Job(id=one, type="t", namespace=namespace) for one in "ab"])
    stream = watched(stub, namespace, job_ids=["a", "b"])
    first = [await anext(stream) for _ in range(2)]
    assert {one.job_id for one in first} == {"a", "b"}
    assert {(one.status, one.event) for one in first} == {("SCHEDULED", "CURRENT")}
    await plane.queue.cancel_jobs([], ["a", "b"], namespace=namespace)
    *rest, last = [one async for one in stream]
    assert [(one.status, one.state, one.event) for one in rest] == [
        ("CANCELLED", "UNSCHEDULED", "CANCEL")
    ] * 2
    assert last == pb.JobEventMessage(ending="end")
    again = [one async for one in watched(stub, namespace, job_ids=["a"], after=first[1].position)]
    assert [(one.job_id, one.event, one.ending) for one in again if one.event or one.ending] == [
        ("a", "CANCEL", ""),
        ("", "", "end"),
    ]


async def test_a_filter_goes_on_from_a_position(
    plane: Plane, stub: QueueStub, namespace: str
) -> None:
    stream = watched(stub, namespace, types=["t"], statuses=["SCHEDULED"])
    begun = await anext(stream)
    assert begun == pb.JobEventMessage(position=begun.position)
    await plane.queue.enqueue_job(Job(id="a", type="t", namespace=namespace))
    assert (await anext(stream)).job_id == "a"
    again = watched(stub, namespace, types=["t"], after=begun.position)
    told = [await anext(again), await anext(again)]
    assert [one.job_id for one in told if one.job_id] == ["a"]


@pytest.mark.parametrize(
    ("wish", "code", "ours"),
    [
        ({"after": "x"}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"after": "12345678.1.1."}, grpc.StatusCode.OUT_OF_RANGE, "POSITION_EXPIRED"),
        ({"job_ids": ["no"]}, grpc.StatusCode.NOT_FOUND, "NOT_FOUND"),
        ({"statuses": ["DONE"]}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"job_ids": ["a"], "types": ["t"]}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"tags": ["t"] * 33}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
    ],
)
async def test_what_is_wrong_is_told(
    stub: QueueStub, namespace: str, wish: dict[str, object], code: grpc.StatusCode, ours: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(watched(stub, namespace, **wish))
    assert refused.value.code() is code
    assert dict(refused.value.trailing_metadata() or ())[ERROR_CODE_KEY] == ours


async def test_the_client_goes_on_after_its_server_was_away(
    plane: Plane, client: GrpcQueue, namespace: str
) -> None:
    """What happened meanwhile is told, and nothing twice."""
    told: list[tuple[str, str]] = []
    await client.enqueue_jobs([Job(id=one, type="t", namespace=namespace) for one in "ab"])
    async with client.watch("a", namespace=namespace) as events:
        first = await anext(events)
        assert (first.status, first.event) == (Phase.SCHEDULED, "CURRENT")
        filtered = client.watch(types=["t"], after=first.position, namespace=namespace)
        await plane.server.stop(0.0)
        await plane.queue.cancel_jobs([], ["a", "b"], namespace=namespace)
        grpc_settings = GrpcSettings(host="127.0.0.1", port=plane.port)
        again = WorkerPlaneServer(
            plane.queue,
            StaticAuthenticator({"test": SecretStr(TOKEN)}),
            Settings(grpc=grpc_settings),
        )
        await again.start()
        async with asyncio.timeout(DEADLINE_S):
            told += [(one.job_id, one.event) async for one in events]
            both = {(await anext(filtered)).job_id for _ in range(2)}
        await filtered.aclose()
        await again.stop(0.0)
    assert told == [("a", "CANCEL")]
    assert both == {"a", "b"}


async def test_a_store_that_cannot_be_followed_is_asked_by_the_client(
    start_plane: StartPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "hub_of", lambda *_: None)
    plane = await start_plane()
    await plane.queue.enqueue_job(Job(id="a", type="t", namespace=namespace))
    async with GrpcQueue(f"127.0.0.1:{plane.port}", TOKEN) as client:
        events = client.watch("a", namespace=namespace, poll_s=0.01)
        assert (await anext(events)).status is Phase.SCHEDULED
        await plane.queue.cancel_jobs([], ["a"], namespace=namespace)
        assert [one.status async for one in events] == [Phase.CANCELLED]
        with pytest.raises(QueueError, match="cannot be followed"):
            await anext(client.watch(types=["t"], namespace=namespace))
