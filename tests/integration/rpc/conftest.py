"""The worker plane on a real queue and a real PostgreSQL, and a plain gRPC client."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from pydantic import SecretStr
from tests.conftest import migrated_database
from tests.pools import closed_pools  # noqa: F401
from tests.waiting import DEADLINE_S, STATEMENT_S

from queue_operator.auth.protocol import Authenticator, Authorizer
from queue_operator.auth.static import StaticAuthenticator
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import Backend
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import (
    GrpcSettings,
    LimitSettings,
    Quota,
    QuotaSettings,
    Settings,
)
from queue_operator.wire.v1 import worker_pb2 as pb
from queue_operator.wire.v1.worker_pb2_grpc import WorkerPlaneStub

TOKEN = "a test token"
MESSAGE_BYTES = 64 * 1024
SMALL = "two-may-wait"
"""A namespace with a quota."""


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "rpc") as address:
        yield address


@pytest.fixture
def namespace() -> str:
    return f"team-{uuid.uuid4().hex[:8]}"


@dataclass
class Plane:
    """A running server with its queue."""

    queue: QueueService
    server: WorkerPlaneServer
    port: int
    token: str = TOKEN


StartPlane = Callable[..., Awaitable[Plane]]


@pytest.fixture
async def start_plane(dsn: str) -> AsyncIterator[StartPlane]:
    async with AsyncExitStack() as stack:

        async def start(
            authenticator: Authenticator | None = None,
            authorizer: Authorizer | None = None,
            batch_jobs: int = 10_000,
            quota: Quota | None = None,
            backend: Backend | None = None,
            **grpc_settings: Any,
        ) -> Plane:
            settings = Settings(
                grpc=GrpcSettings(host="127.0.0.1", port=0, **grpc_settings),
                limits=LimitSettings(result_bytes=1024, batch_jobs=batch_jobs),
            )
            quotas = QuotaSettings(
                default=quota or Quota(), namespaces={SMALL: Quota(pending_jobs=2)}
            )
            queue = QueueService(
                backend or await PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S),
                settings.queue,
                quotas=quotas,
                replica="r1",
            )
            await queue.start()
            stack.push_async_callback(queue.close)
            authenticator = authenticator or StaticAuthenticator({"test": SecretStr(TOKEN)})
            server = WorkerPlaneServer(queue, authenticator, settings, authorizer)
            port = await server.start()
            stack.push_async_callback(server.stop, 0.5)
            return Plane(queue, server, port)

        yield start


@pytest.fixture
async def plane(start_plane: StartPlane) -> Plane:
    return await start_plane(message_bytes=MESSAGE_BYTES)


@pytest.fixture
async def roomy_plane(start_plane: StartPlane) -> Plane:
    """With the message size of the defaults."""
    return await start_plane()


@pytest.fixture
def queue(plane: Plane) -> QueueService:
    return plane.queue


@pytest.fixture
async def client(plane: Plane) -> AsyncIterator[GrpcQueue]:
    async with GrpcQueue(f"127.0.0.1:{plane.port}", TOKEN, timeout_s=DEADLINE_S) as client:
        yield client


@pytest.fixture
def metadata() -> Callable[[str], tuple[tuple[str, str], ...]]:
    """Of a call that is made by hand."""
    return lambda namespace: (("authorization", f"Bearer {TOKEN}"), ("namespace", namespace))


@dataclass
class RawWorker:
    """One connection, spoken by hand."""

    namespace: str
    channel: grpc.aio.Channel
    session_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    token: str = TOKEN

    def __post_init__(self) -> None:
        metadata = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        self.call = WorkerPlaneStub(self.channel).Session(metadata=metadata)

    async def say(self, **message: object) -> None:
        await self.call.write(pb.WorkerMessage(**message))  # type: ignore[arg-type]

    async def hear(self) -> pb.ServerMessage:
        message = await asyncio.wait_for(self.call.read(), DEADLINE_S)
        assert isinstance(message, pb.ServerMessage), "the server ended the call"
        return message

    async def hear_of(self, kind: str) -> pb.ServerMessage:
        """The next message of a kind; others are skipped."""
        while (message := await self.hear()).WhichOneof("message") != kind:
            pass
        return message

    async def hello(self, capacity: int = 10, **fields: object) -> pb.Welcome:
        values = {"session_id": self.session_id, "worker_name": "w", "namespace": self.namespace}
        values["process"] = f"the process of {self.session_id}"
        await self.say(hello=pb.Hello(capacity=capacity, **(values | fields)))  # type: ignore[arg-type]
        return (await self.hear_of("welcome")).welcome

    async def assignments(self, count: int) -> list[pb.Assignment]:
        jobs: list[pb.Assignment] = []
        while len(jobs) < count:
            jobs += (await self.hear_of("assignments")).assignments.assignments
        return jobs

    async def settle(self, *outcomes: pb.Outcome) -> list[pb.OutcomeAck]:
        await self.say(outcomes=pb.OutcomeBatch(outcomes=outcomes))
        return list((await self.hear_of("outcome_acks")).outcome_acks.acks)

    async def failure(self) -> grpc.aio.AioRpcError:
        """The status with which the server ends the call."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(self._hear_to_the_end(), DEADLINE_S)
        return caught.value

    async def _hear_to_the_end(self) -> None:
        while await self.call.read() is not grpc.aio.EOF:
            pass


@pytest.fixture
async def connect(plane: Plane, namespace: str) -> AsyncIterator[Callable[..., RawWorker]]:
    """Opens connections; each has a channel of its own, as worker processes have."""
    channels: list[grpc.aio.Channel] = []

    def connect_one(port: int = plane.port, **fields: str) -> RawWorker:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels.append(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options))
        return RawWorker(namespace, channels[-1], **fields)

    yield connect_one
    for channel in channels:
        await channel.close()


@pytest.fixture
def new_jobs(namespace: str) -> Callable[..., list[Job]]:
    def make(count: int = 1, type: str = "mail", **fields: object) -> list[Job]:
        return [
            Job(id=uuid.uuid4().hex, type=type, namespace=namespace, **fields)  # type: ignore[arg-type]
            for _ in range(count)
        ]

    return make
