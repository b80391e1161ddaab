"""A line to the server that can be cut, or fall silent, at any point."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK = 65_536


class Proxy:
    """Passes bytes on. An exchange is a request and the beginning of its answer."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._lines: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._left: int | None = None
        self._stop = b""
        self._stopped = asyncio.Event()
        self._going = asyncio.Event()
        self._going.set()
        self._silent_next = False
        self._speaking = asyncio.Event()
        self._speaking.set()

    def stop_after(self, statement: bytes) -> None:
        """Holds back the answer to the next request with these words, until `go_on`."""
        self._stop = statement
        self._stopped.clear()
        self._going.clear()

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    def go_on(self) -> None:
        self._going.set()

    def cut_at(self, exchange: int) -> None:
        """Hangs up instead of passing on the answer of the n-th exchange from now on."""
        self._left, self._silent_next = exchange, False

    def fall_silent(self) -> None:
        """From now on takes calls and requests, and passes nothing on, in either direction."""
        self._speaking.clear()

    def fall_silent_at(self, exchange: int) -> None:
        """Falls silent instead of passing on the answer of the n-th exchange from now on."""
        self._left, self._silent_next = exchange, True

    def speak(self) -> None:
        """Passes on what was held back, where somebody still listens, and all that comes."""
        self._speaking.set()

    def is_armed(self) -> bool:
        """True until the cut, or the silence, has happened."""
        return self._left is not None

    def disarm(self) -> None:
        self._left = None

    async def go_down(self) -> None:
        """Hangs up on everybody, and on whoever calls."""
        self._refusing = True
        await self.hang_up()

    def come_back(self) -> None:
        self._refusing = False

    async def hang_up(self) -> None:
        lines = list(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.create_task(self._connect(reader, writer))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            if self._refusing:
                return
            answers, upstream = await asyncio.open_connection(*self._server)
            asked: list[bytes] = []
            pumps = [
                asyncio.create_task(self._pass_requests(reader, upstream, asked)),
                asyncio.create_task(self._pass_answers(answers, writer, asked)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            for side in (writer, upstream):
                if side is not None:
                    side.transport.abort()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, asked: list[bytes]
    ) -> None:
        while data := await reader.read(_CHUNK):
            asked.append(data)
            await self._speaking.wait()
            upstream.write(data)
            await upstream.drain()

    async def _pass_answers(
        self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[bytes]
    ) -> None:
        while data := await answers.read(_CHUNK):
            if asked and self._left is not None:
                self._left -= 1
                if self._left == 0:
                    self._left = None
                    if not self._silent_next:
                        return
                    self.fall_silent()
            if self._stop and any(self._stop in request for request in asked):
                self._stop = b""
                self._stopped.set()
                await self._going.wait()
            asked.clear()
            await self._speaking.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server, and the address that leads through it."""
    there = conninfo_to_dict(dsn)
    proxy = Proxy((str(there["host"]), int(str(there["port"]))))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, make_conninfo(dsn, host="127.0.0.1", port=port)
    finally:
        server.close()
        await proxy.hang_up()
        await server.wait_closed()
