"""What the server says when it cannot begin."""

import socket

import pytest

from queue_operator.auth.open import OpenAuthenticator
from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.domain.errors import Unavailable
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import GrpcSettings, QueueSettings, Settings


def plane(host: str, port: int) -> WorkerPlaneServer:
    settings = Settings(grpc=GrpcSettings(host=host, port=port))
    queue = QueueService(MemoryBackend(MemoryShelf()), QueueSettings())
    return WorkerPlaneServer(queue, OpenAuthenticator(), settings)


async def told(host: str, port: int) -> str:
    with pytest.raises(Unavailable) as raised:
        await plane(host, port).start()
    return raised.value.message


async def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reason = "the port is taken; set QUEUE_OPERATOR_GRPC__PORT"
        assert await told("127.0.0.1", port) == f"cannot serve gRPC on 127.0.0.1:{port}: {reason}"


async def test_an_address_that_is_not_ours_is_not_called_a_taken_port() -> None:
    reason = "the address is none of this machine's; set QUEUE_OPERATOR_GRPC__HOST"
    assert await told("192.0.2.1", 0) == f"cannot serve gRPC on 192.0.2.1:0: {reason}"


@pytest.mark.parametrize("host", ["::", "[::]", "::1", "localhost"])
async def test_every_way_to_write_an_address_is_listened_on(host: str) -> None:
    server = plane(host, 0)
    port = await server.start()
    families = ("127.0.0.1", "::1") if host in ("::", "[::]") else (host,)
    for family in families:
        socket.create_connection((family, port), timeout=5).close()
    await server.stop(0)
