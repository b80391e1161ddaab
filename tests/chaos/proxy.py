"""A line between two processes that can be cut, slowed down, or left half open."""

import asyncio
from collections.abc import Callable
from typing import Self

_CHUNK = 65_536
Address = tuple[str, int]


class Proxy:
    """Passes bytes on to wherever `find` says, asked anew for each connection.

    Half open is what a firewall leaves that forgets a connection: both ends think that it is
    there, and nothing arrives. Connections that are made later work.
    """

    def __init__(self, find: Callable[[], Address]) -> None:
        self._find = find
        self._lines: dict[asyncio.Task[None], asyncio.Event] = {}
        self._slowness_s = 0.0
        self._never = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Every connection ends at both ends, without a goodbye."""
        lines = list(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    def slow_down(self, seconds: float) -> None:
        """Whatever is sent from now on arrives so much later; 0 ends it."""
        self._slowness_s = seconds

    def half_open(self) -> None:
        """Nothing passes through any connection that is open now, ever again."""
        for lost in self._lines.values():
            lost.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lost = asyncio.Event()
        line = asyncio.create_task(self._connect(reader, writer, lost))
        self._lines[line] = lost
        line.add_done_callback(lambda done: self._lines.pop(done))

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        other: asyncio.StreamWriter | None = None
        try:
            answers, other = await asyncio.open_connection(*self._find())
            ways = [
                asyncio.create_task(self._pass(reader, other, lost)),
                asyncio.create_task(self._pass(answers, writer, lost)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            return  # nobody there: the caller's connection ends too
        finally:
            for side in (writer, other):
                if side is not None:
                    side.transport.abort()

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        while data := await source.read(_CHUNK):
            if self._slowness_s:
                await waited(self._never, self._slowness_s)
            if lost.is_set():
                await self._never.wait()
            target.write(data)
            await target.drain()


async def waited(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event, but no longer than that; whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
