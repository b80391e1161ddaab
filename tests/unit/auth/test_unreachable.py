"""An API server that is away, or silent, must neither let anybody in nor stop the loop."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.auth.apiserver import reviews_by

from queue_operator.auth.kubernetes import (
    KubernetesAuthenticator,
    KubernetesAuthorizer,
)
from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Unavailable


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def test_an_absent_api_server_is_unavailable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reviews = reviews_by(f"http://127.0.0.1:{port}", tmp_path)
    with pytest.raises(Unavailable, match="API server cannot be reached"):
        await KubernetesAuthenticator(reviews, "queue-operator").authenticate("token")
    with pytest.raises(Unavailable, match="API server cannot be reached"):
        await KubernetesAuthorizer(reviews).authorize(
            Identity(name="me", namespace="a"), "get", "queuejobs", "a"
        )
    reviews.close()


async def test_a_silent_api_server_does_not_stop_the_event_loop(
    silent: socket.socket, tmp_path: Path
) -> None:
    reviews = reviews_by(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    authenticator = KubernetesAuthenticator(reviews, "queue-operator")
    waiting = asyncio.create_task(authenticator.authenticate("token"))
    loop = asyncio.get_running_loop()
    silent.setblocking(False)
    # That this accept gets its turn, while the call waits, is the point of the test.
    connection, _ = await loop.sock_accept(silent)
    assert not waiting.done()
    # Nobody to connect to any more, for the client's second try.
    silent.close()
    connection.close()
    with pytest.raises(Unavailable):
        await waiting
    reviews.close()
