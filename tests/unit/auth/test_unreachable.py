"""An API server that is away, or silent, must neither let anybody new in nor stop the loop."""

import asyncio
import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

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


async def test_whoever_stands_in_line_while_nobody_answers_does_not_wait_for_a_silence_of_his_own(
    silent: socket.socket, tmp_path: Path
) -> None:
    reviews = reviews_by(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    authenticator = KubernetesAuthenticator(reviews, "queue-operator")
    waiting = [asyncio.create_task(authenticator.authenticate(f"token {n}")) for n in range(20)]
    loop = asyncio.get_running_loop()
    silent.setblocking(False)
    # Four ask at a time; the others stand in line.
    asking = [(await loop.sock_accept(silent))[0] for _ in range(4)]
    for connection in asking:
        connection.close()
    refused = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(one) for one in refused} == {Unavailable}
    with pytest.raises(BlockingIOError):
        silent.accept()
    reviews.close()


async def test_with_no_time_for_outages_nobody_is_let_in_while_it_is_away(tmp_path: Path) -> None:
    now = 0.0
    with HTTPServer(("127.0.0.1", 0), Cluster) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        reviews = reviews_by(f"http://127.0.0.1:{server.server_port}", tmp_path)
        authenticator = KubernetesAuthenticator(
            reviews, "queue-operator", lambda: now, outage_s=0.0
        )
        authorizer = KubernetesAuthorizer(reviews, lambda: now, outage_s=0.0)
        me = await authenticator.authenticate("token")
        await authorizer.authorize(me, "create", "queuejobs", "a")
        server.shutdown()
        thread.join()
    now = 10.0
    with pytest.raises(Unavailable):
        await authenticator.authenticate("token")
    with pytest.raises(Unavailable):
        await authorizer.authorize(me, "create", "queuejobs", "a")
    reviews.close()


class Cluster(BaseHTTPRequestHandler):
    """Vouches for each token, and allows everything."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        audiences = asked["spec"].get("audiences")
        status = {"allowed": True, "authenticated": True, "audiences": audiences}
        told = json.dumps({**asked, "status": {**status, "user": {"username": "me"}}}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


async def test_whoever_was_known_before_still_is_for_ten_minutes(tmp_path: Path) -> None:
    now = 0.0
    with HTTPServer(("127.0.0.1", 0), Cluster) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        reviews = reviews_by(f"http://127.0.0.1:{server.server_port}", tmp_path)
        authenticator = KubernetesAuthenticator(reviews, "queue-operator", lambda: now)
        authorizer = KubernetesAuthorizer(reviews, lambda: now)
        me = await authenticator.authenticate("token")
        await authorizer.authorize(me, "create", "queuejobs", "a")
        server.shutdown()
        thread.join()
    now = 599.0
    assert await authenticator.authenticate("token") == me
    await authorizer.authorize(me, "create", "queuejobs", "a")
    with pytest.raises(Unavailable):
        await authenticator.authenticate("another")
    with pytest.raises(Unavailable):
        await authorizer.authorize(me, "delete", "queuejobs", "a")
    now = 600.0
    with pytest.raises(Unavailable):
        await authenticator.authenticate("token")
    with pytest.raises(Unavailable):
        await authorizer.authorize(me, "create", "queuejobs", "a")
    reviews.close()
