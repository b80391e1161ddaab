"""The metrics' port: connections above a number, and those that take their time, are closed."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import RemoteDisconnected

import pytest
from prometheus_client import CollectorRegistry

from queue_operator.devcluster.processes import wait_until
from queue_operator.metrics.serving import BoundedServer, serve

TIMEOUT_S = 10.0


class Small(BoundedServer):
    most = 2
    connection_s = 0.5


class Patient(Small):
    connection_s = 600.0


@contextmanager
def served(kind: type[BoundedServer] = Small) -> Iterator[int]:
    server, thread = serve("127.0.0.1", 0, CollectorRegistry(), kind)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def told(connection: socket.socket) -> bytes:
    with connection:
        try:
            return connection.recv(100)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("said", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nX: "])
def test_whoever_does_not_go_on_is_hung_up_on(
    said: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as port:
        connection = connected(port)
        connection.sendall(said)
        assert b"200" not in told(connection)
    assert "Traceback" not in capsys.readouterr().err


def test_connections_above_the_number_are_closed_and_a_scrape_comes_later() -> None:
    with served(Patient) as port:
        first, second = connected(port), connected(port)
        # The others have all the time that they want, so it is their number.
        assert told(connected(port)) == b""
        first.close()
        second.close()
        # Their places are free when their threads have ended.
        wait_until(lambda: scrapes(port), "a scrape", TIMEOUT_S)


def scrapes(port: int) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S
        ) as answer:
            return bool(answer.status == 200)
    except (ConnectionResetError, RemoteDisconnected, urllib.error.URLError):
        return False
