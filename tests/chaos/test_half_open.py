"""A connection of which both ends believe that it is there, and through which nothing passes."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc import aio
from tests.chaos.proxy import Proxy

from queue_operator.auth.open import OpenAuthenticator
from queue_operator.backends.memory import MemoryBackend
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import Settings
from queue_operator.testing.history import Kind, Log, record_host
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.wire.v1.worker_pb2_grpc import WorkerPlaneStub
from queue_operator.worker.client import CHANNEL_OPTIONS

NOTICED_S = 8.0
"""Of the keepalive's five seconds, and what a busy machine adds."""


@pytest.fixture
async def host() -> AsyncIterator[QueueService]:
    queue = QueueService(MemoryBackend())
    await queue.start()
    yield queue
    await queue.close()


@pytest.fixture
async def plane(host: QueueService) -> AsyncIterator[int]:
    server = WorkerPlaneServer(host, OpenAuthenticator(), Settings())
    yield await server.start(0)
    await server.stop()


async def test_both_ends_notice_that_nothing_passes_any_more(
    host: QueueService, plane: int
) -> None:
    closed = asyncio.Event()

    class Told(Log):
        def write(self, kind: Kind, *about: str, **said: object) -> None:
            if kind is Kind.STREAM_CLOSED:
                closed.set()

    record_host(host, Told("server"))
    async with (
        Proxy(lambda: ("127.0.0.1", plane)) as proxy,
        aio.insecure_channel(f"127.0.0.1:{proxy.port}", options=CHANNEL_OPTIONS) as channel,
    ):
        call = WorkerPlaneStub(channel).Session()
        hello = wire.Hello(session_id="s", worker_name="w", capacity=1)
        await call.write(wire.WorkerMessage(hello=hello))
        assert isinstance(await call.read(), wire.ServerMessage)
        proxy.half_open()
        async with asyncio.timeout(NOTICED_S):
            with pytest.raises(aio.AioRpcError) as error:
                await call.read()
            await closed.wait()
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert host.usage() == []
