"""Callers over HTTP/1.1 that cost little themselves: what they send is made before, and of an
answer no more is read than the status and where it ends.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final, Self, cast

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)

Answer = tuple[int, bytes]


class ConnectionLost(Exception):
    """The server closed a connection that somebody waits on."""


class Caller(asyncio.Protocol):
    """One connection that is kept, and one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._ends_at = 0
        self._body_at = 0
        self._answer: asyncio.Future[Answer] | None = None

    @classmethod
    async def connect(cls, port: int) -> Self:
        _, caller = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return caller

    async def call(self, request: bytes) -> Answer:
        """Status and body."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loop's own class, which is none of the standard library's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._ends_at:
            self._read_head()
        if self._ends_at and len(self._received) >= self._ends_at:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionLost())

    def _read_head(self) -> None:
        end = self._received.find(_HEAD_END)
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = head.partition(_LENGTH)[2].partition(b"\r\n")[0]
        self._body_at = end + len(_HEAD_END)
        self._ends_at = self._body_at + int(length or 0)

    def _end(self) -> None:
        status = int(self._received[_STATUS])
        body = bytes(self._received[self._body_at : self._ends_at])
        self._received.clear()
        self._ends_at = 0
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, body))


class Callers:
    """Some connections to one server."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._stack = AsyncExitStack()
        self.all: list[Caller] = []

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            caller = await Caller.connect(self._port)
            self._stack.callback(caller.close)
            self.all.append(caller)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ConnectionLost):
            await self._stack.aclose()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """The bytes of one."""
    lines = [f"{method} {path} HTTP/1.1", "host: bench"]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
