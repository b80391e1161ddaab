"""Serves an application inside a running event loop."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import ClassVar, Final, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from queue_operator.api.tls import RenewedContext
from queue_operator.domain.hosts import authority
from queue_operator.wire.certificate_files import ServerFiles
from queue_operator.wire.listening import listening, refusal

_LOCAL: Final = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}  # noqa: S104  (asked, not bound)
_DATE_S: Final = 1.0
_HEAD_BYTES: Final = 128 * 1024
"""The most that request line and headers, or trailers, may have beside what is read at once."""
HEAD_S: Final = 10.0
"""How long a connection may take from its beginning to its first head, and one head to its end."""
BODY_SILENCE_S: Final = 30.0
"""How long the rest of a body may be waited for without any of it."""
UNREAD_S: Final = 30.0
"""How long the rest of an answer may wait for somebody who reads none of it."""
MOST_AHEAD: Final = 32
"""Requests that a connection may send before the answer to the first."""
CONNECTIONS: Final = 1000
"""Of servers that few have to do with."""
HANDSHAKE_S: Final = 10.0
"""How long a caller may take to agree on TLS."""
SHUTDOWN_S: Final = 10
"""How long open requests may take to end when the server stops."""


class _TooFarAhead(Exception):
    """Requests came before the answers to too many others."""


class _Bounded(HttpToolsProtocol):
    """Hangs up on a request whose head, chunk line or trailers do not end: neither the parser nor
    the server counts. Trailers are dropped: the server took them for headers. Hangs up, too, on
    whoever says nothing, does not go on, or asks far ahead: all that came at once is parsed at
    once. Above the number that is served whoever has been without a request for longest gives way:
    nobody is kept out by those who only connect, or do not read what they asked for.
    """

    most = 0
    idle: ClassVar[dict["_Bounded", None]] = {}
    """Those of one server without a request, the longest so first."""
    _timer: asyncio.TimerHandle | None = None
    _bytes = 0
    _counts = False
    _began = False
    _head_ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.idle[self] = None
        self._hang_up_in(HEAD_S)
        if len(self.connections) > self.most:
            # At the least the new one itself.
            longest = next(iter(self.idle))
            del self.idle[longest]
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._wait_no_more()
        super().connection_lost(exc)

    def _hang_up_in(self, seconds: float) -> None:
        self._wait_no_more()
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        if self._head_ended and self.flow.read_paused:
            # Who is not read cannot go on.
            self._hang_up_in(BODY_SILENCE_S)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._began = False
        super().data_received(data)
        if self._timer is None:
            if self in self.idle:
                # Line breaks end the waiting for a request, and begin none.
                self._hang_up_in(HEAD_S)
        elif self._head_ended:
            self._hang_up_in(BODY_SILENCE_S)
        if self._counts and not self._began:
            self._bytes += len(data)
            if self._bytes > _HEAD_BYTES and not self.transport.is_closing():
                self._hang_up()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_AHEAD:
            self.transport.abort()
            # Nothing else ends the parser before the end of what it was given.
            raise _TooFarAhead
        self._count()
        self._head_ended = False
        self._hang_up_in(HEAD_S)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_ended:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._count()
        self._head_ended = True
        self.idle.pop(self, None)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self.timeout_keep_alive_task is not None:
            # What is left of the answer is on its way.
            self.idle[self] = None

    def on_body(self, body: bytes) -> None:
        self._counts = False
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        self._count()

    def on_message_complete(self) -> None:
        self._counts = self._head_ended = False
        self._wait_no_more()
        super().on_message_complete()

    def _count(self) -> None:
        self._bytes, self._counts, self._began = 0, True, True

    def _hang_up(self) -> None:
        if self._head_ended and self.cycle.response_started:
            self.transport.close()
            return
        told = "trailers" if self._head_ended else "head"
        self.send_400_response(f"The {told} of the request is over {_HEAD_BYTES} bytes.")


class Address(Protocol):
    """Where to listen; port 0 picks a free one."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class _Embedded(uvicorn.Server):
    """Leaves the process' signals to the process, and is told when to end instead of looking ten
    times a second.
    """

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As the base does for sockets that it is given; that sets no limit for handshakes."""

        def protocol() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                protocol,
                sock=one,
                backlog=self.config.backlog,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
            )
            for one in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        # A first tick renews the date that answers carry.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _DATE_S)

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()


class RestServer:
    """One listening server. `start` once, then `stop` once. `setting` is the part of the
    settings that has the address. Of more than so many `connections` one without a request is
    closed, or the new one; without a request one is closed after `keep_alive_s` anyway. With
    `files` it speaks TLS only.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        setting: str = "REST",
        *,
        connections: int = CONNECTIONS,
        keep_alive_s: float = 5.0,
        files: ServerFiles | None = None,
    ) -> None:
        self._address = address
        self._setting = setting
        self._scheme = "http" if files is None else "https"
        self._server = _Embedded(
            uvicorn.Config(
                app,
                http=type("Bounded", (_Bounded,), {"most": connections, "idle": {}}),
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                # The figure is handed to the event loop as it is.
                timeout_keep_alive=keep_alive_s,  # type: ignore[arg-type]
                timeout_graceful_shutdown=SHUTDOWN_S,
            ),
            None if files is None else RenewedContext(files),
        )
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The bound port. Raises RuntimeError before `start`."""
        if self._socket is None:
            raise RuntimeError("the server has not been started")
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where callers on this machine reach it."""
        host = self._address.host
        return f"{self._scheme}://{authority(_LOCAL.get(host, host), self.port)}"

    async def start(self) -> None:
        """Listens from here on. Raises OSError when the address is taken."""
        host, port = self._address.host, self._address.port
        try:
            self._socket = listening(host, port)
        except OSError as error:
            told = refusal(self._setting, host, port, error, self._setting)
            raise OSError(told) from None
        # Connections inherit it. Left to the loop, which looks at the socket's protocol, they would
        # not have it, and each answer waited for the caller's delayed acknowledgement, 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # To close a connection is to wait until all has been read.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1000))
        self._socket.setblocking(False)
        self._serving = asyncio.create_task(
            self._server.serve([self._socket]), name=f"http server on port {self.port}"
        )

    async def stop(self) -> None:
        """Takes no new requests and waits for those under way, at most ten seconds."""
        if self._serving is None:
            return
        self._server.leave()
        await self._serving
        if self._socket is not None:
            self._socket.close()
