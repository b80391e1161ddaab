"""What the server says when it cannot begin."""

import socket

import pytest

from queue_operator.auth.open import OpenAuthenticator
from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.domain.errors import Unavailable
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import GrpcSettings, QueueSettings, Settings


async def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(grpc=GrpcSettings(host="127.0.0.1", port=port))
        queue = QueueService(MemoryBackend(MemoryShelf()), QueueSettings())
        server = WorkerPlaneServer(queue, OpenAuthenticator(), settings)
        told = f"cannot serve gRPC on 127.0.0.1:{port}: .* set QUEUE_OPERATOR_GRPC__PORT"
        with pytest.raises(Unavailable, match=told):
            await server.start()
