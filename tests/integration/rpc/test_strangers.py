"""What somebody without a token can cost the gRPC port at most.

A call: its metadata and the windows that HTTP/2 opens by itself before the refusal arrives, which
were measured at 1 to 2 MiB; 256 calls at a time. A connection: a place among `grpc.connections`,
for two minutes.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.integration.rpc.conftest import TOKEN, Plane, StartPlane
from tests.waiting import DEADLINE_S

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Unauthenticated
from queue_operator.queue.service import QueueService
from queue_operator.rpc import server as module
from queue_operator.rpc.gate import MOST_UNVOUCHED
from queue_operator.rpc.session import HELD_AT_LEAST
from queue_operator.wire.v1 import worker_pb2 as pb

MIB = 1024 * 1024
WINDOWS = 8 * MIB
METHOD = "/queueoperator.v1.Queue/EnqueueJobs"


class Line:
    """Passes bytes on, and counts those that go to the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.passed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._back(answers, writer))
        try:
            while data := await reader.read(65_536):
                self.passed += len(data)
                server.write(data)
                await server.drain()
        except OSError:
            pass
        finally:
            back.cancel()
            server.close()
            writer.close()

    async def _back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await answers.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def counted(port: int) -> AsyncIterator[tuple[Line, str]]:
    line = Line(port)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    async with server:
        yield line, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def refused(channel: grpc.aio.Channel, body: bytes, token: str = "") -> grpc.StatusCode:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    call: Any = channel.unary_unary(METHOD)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call(body, metadata=metadata, timeout=DEADLINE_S)
    return raised.value.code()


@pytest.mark.parametrize("token", ["", "not the right one"])
async def test_the_message_of_a_stranger_is_not_read(roomy_plane: Plane, token: str) -> None:
    async with (
        counted(roomy_plane.port) as (line, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        code = await refused(channel, b"x" * 60 * MIB, token)
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert line.passed < WINDOWS
        # One who may call is told what is wrong with it.
        code = await refused(channel, b"x" * 60 * MIB, TOKEN)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert line.passed > 60 * MIB


async def test_the_hello_of_a_stranger_is_not_read(roomy_plane: Plane) -> None:
    async with (
        counted(roomy_plane.port) as (line, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await hello(channel, b"x" * 60 * MIB)
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert line.passed < WINDOWS


async def hello(channel: grpc.aio.Channel, body: bytes) -> None:
    call: Any = channel.stream_stream("/queueoperator.v1.WorkerPlane/Session")(timeout=DEADLINE_S)
    await call.write(body)
    await call.read()


KNOWN = "known"


class Slow:
    """Says nothing of strangers until it is told to, and knows one caller."""

    def __init__(self) -> None:
        self.asked = 0
        self.full = asyncio.Event()
        self.answer = asyncio.Event()
        self.revoked = False

    async def authenticate(self, token: str | None) -> Identity:
        if token == KNOWN and self.revoked:
            raise Unauthenticated("nobody knows you any more")
        if token == KNOWN:
            return Identity(name="me", namespace="default", admin=True)
        self.asked += 1
        if self.asked == MOST_UNVOUCHED:
            self.full.set()
        await self.answer.wait()
        raise Unauthenticated("nobody knows you")


async def test_so_many_are_vouched_for_at_a_time(start_plane: StartPlane) -> None:
    slow = Slow()
    plane = await start_plane(authenticator=slow)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
        # With a body that is none, it is told so once it is let in.
        assert await refused(channel, b"\xff", KNOWN) is grpc.StatusCode.INVALID_ARGUMENT
        waiting = [asyncio.create_task(refused(channel, b"")) for _ in range(MOST_UNVOUCHED)]
        async with asyncio.timeout(DEADLINE_S):
            await slow.full.wait()
        assert await refused(channel, b"") is grpc.StatusCode.RESOURCE_EXHAUSTED
        # Strangers keep out strangers, and nobody who was here before.
        assert await refused(channel, b"\xff", KNOWN) is grpc.StatusCode.INVALID_ARGUMENT
        slow.answer.set()
        assert set(await asyncio.gather(*waiting)) == {grpc.StatusCode.UNAUTHENTICATED}
        assert await refused(channel, b"") is grpc.StatusCode.UNAUTHENTICATED


async def test_who_has_a_token_that_was_revoked_is_a_stranger(start_plane: StartPlane) -> None:
    slow = Slow()
    plane = await start_plane(authenticator=slow)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
        assert await refused(channel, b"\xff", KNOWN) is grpc.StatusCode.INVALID_ARGUMENT
        slow.revoked = True
        assert await refused(channel, b"", KNOWN) is grpc.StatusCode.UNAUTHENTICATED
        waiting = [asyncio.create_task(refused(channel, b"")) for _ in range(MOST_UNVOUCHED)]
        async with asyncio.timeout(DEADLINE_S):
            await slow.full.wait()
        assert await refused(channel, b"", KNOWN) is grpc.StatusCode.RESOURCE_EXHAUSTED
        slow.answer.set()
        assert set(await asyncio.gather(*waiting)) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_connections_above_the_limit_are_closed(start_plane: StartPlane) -> None:
    plane = await start_plane(connections=3)
    silent = [socket.create_connection(("127.0.0.1", plane.port), timeout=5) for _ in range(3)]
    try:
        # Each is greeted by the server's settings.
        assert all(one.recv(9) for one in silent)
        with socket.create_connection(("127.0.0.1", plane.port), timeout=5) as one_more:
            assert one_more.recv(9) == b""
        silent.pop().close()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
            assert await refused(channel, b"") is grpc.StatusCode.UNAUTHENTICATED
    finally:
        for one in silent:
            one.close()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("said", [b"", PREFACE[:10]])
async def test_a_connection_that_does_not_begin_has_its_time(
    start_plane: StartPlane, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    assert module.HANDSHAKE_S == 10
    monkeypatch.setattr(module, "HANDSHAKE_S", 1)
    plane = await start_plane()
    reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
    writer.write(said)
    async with asyncio.timeout(DEADLINE_S):
        # Its settings, perhaps a goodbye, and the end.
        await reader.read()
    writer.close()


async def test_a_connection_without_a_call_has_its_time(
    start_plane: StartPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.IDLE_S == 120
    monkeypatch.setattr(module, "IDLE_S", 1)
    plane = await start_plane()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
        async with asyncio.timeout(DEADLINE_S):
            await channel.channel_ready()
            # One that answers the server's pings.
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


async def test_a_hello_names_no_more_than_a_worker_can_hold(
    queue: QueueService, connect: object
) -> None:
    most = 2 * HELD_AT_LEAST
    worker = connect()  # type: ignore[operator]
    held = [pb.HeldJob(job_id=str(n), token="t") for n in range(most + 1)]
    hello = pb.Hello(
        capacity=10, session_id="s", worker_name="w", namespace=worker.namespace, held=held
    )
    await worker.say(hello=hello)
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"hello.held: names {most + 1} jobs; of a worker of capacity 10" in failure.details()
