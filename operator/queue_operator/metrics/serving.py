"""The HTTP server of the metrics: a thread per request, few at a time, and none for long."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from queue_operator.metrics import scrapers
from queue_operator.wire.listening import listening

MOST_CONNECTIONS: Final = 50
CONNECTION_S: Final = 10.0
"""How long a connection may last: one scrape."""
HEAD_BYTES: Final = 64 * 1024
"""The most that a request may have: its parser takes a hundred lines of as many bytes each."""


class _Head(io.BufferedReader):
    """Ends with an error where a request does not."""

    left = HEAD_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        if not self.left:
            raise ConnectionAbortedError("the request has no end")
        line = super().readline(self.left if size is None or size < 0 else min(size, self.left))
        self.left -= len(line)
        return line


class _Silent(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(socket.SocketIO(self.connection, "r"))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: each scrape would be a line."""


class BoundedServer(ThreadingWSGIServer):
    """Closes connections above a number, and those that last too long."""

    most = MOST_CONNECTIONS
    connection_s = CONNECTION_S

    def __init__(self, *args: Any, **options: Any) -> None:
        self._until_s: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            is_full = len(self._until_s) >= self.most
            if not is_full:
                self._until_s[request] = time.monotonic() + self.connection_s
        if is_full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._until_s.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second."""
        super().service_actions()
        now = time.monotonic()
        with self._guard:
            late = [request for request, until_s in self._until_s.items() if until_s <= now]
        for request in late:
            try:
                # Its thread reads the end, and closes it.
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up in the middle is no news."""


def serve(
    host: str, port: int, registry: CollectorRegistry, kind: type[BoundedServer] = BoundedServer
) -> tuple[WSGIServer, threading.Thread]:
    """Serves from a thread until the server is shut down. Raises OSError."""
    listener = listening(host, port)
    address = listener.getsockname()[:2]
    server = kind(address, _Silent, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = address
    server.setup_environ()
    server.set_app(_one_at_a_time(make_wsgi_app(registry)))
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="metrics")
    thread.start()
    return server, thread


def _one_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Scrapes compute, and so many threads of them would keep the event loop from its work."""
    turn = threading.Lock()

    def scraped(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with turn:
            whose = scrapers.current.set(scrapers.Scraper.of(environ))
            try:
                return app(environ, start_response)
            finally:
                scrapers.current.reset(whose)

    return scraped
