"""The metrics' port: connections above a number, and those that take their time, are closed."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import RemoteDisconnected

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from queue_operator.devcluster.processes import wait_until
from queue_operator.metrics.serving import HEAD_BYTES, BoundedServer, serve

TIMEOUT_S = 10.0


class Small(BoundedServer):
    most = 2
    connection_s = 0.5


class Patient(Small):
    connection_s = 600.0


@contextmanager
def served(
    kind: type[BoundedServer] = Small, registry: CollectorRegistry | None = None
) -> Iterator[int]:
    server, thread = serve("127.0.0.1", 0, registry or CollectorRegistry(), kind)
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


@pytest.mark.parametrize("size", [1000, 60_000])
def test_a_head_has_a_size_whatever_its_lines_have(size: int) -> None:
    lines = b"".join(b"X-%d: %s\r\n" % (n, b"x" * size) for n in range(90))
    assert len(lines) > HEAD_BYTES
    with served(Patient) as port:
        connection = connected(port)
        with suppress(ConnectionError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\n" + lines + b"\r\n")
        assert told(connection) == b""


class Counted(Collector):
    """Sees how many scrapes there are at a time."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0
        self._guard = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self._guard:
            self.now += 1
            self.all += 1
            self.most = max(self.most, self.now)
        # Others have their turn.
        threading.Event().wait(0.01)
        with self._guard:
            self.now -= 1
        yield from ()


class Roomy(BoundedServer):
    connection_s = 600.0


def test_scrapes_wait_for_each_other() -> None:
    """A scrape computes, and the event loop waits for its turn beside all of them."""
    registry, counted = CollectorRegistry(), Counted()
    registry.register(counted)
    before = counted.all
    with served(Roomy, registry) as port, ThreadPoolExecutor(8) as many:
        assert all(many.map(lambda _: scrapes(port), range(16)))
    assert (counted.most, counted.all - before) == (1, 16)


def scrapes(port: int) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S
        ) as answer:
            return bool(answer.status == 200)
    except (ConnectionResetError, RemoteDisconnected, urllib.error.URLError):
        return False
