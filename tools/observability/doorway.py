"""One address in front of several servers, as a Service is in a cluster."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class Doorway:
    """Passes each new connection on to the next of `ports`, on this machine; who is taken from them
    keeps the connections that it has. A context manager, with a thread of its own. Connections come
    from the address `source`, which is one of this machine too.
    """

    def __init__(self, source: str = "127.0.0.1") -> None:
        self._source = source
        self.ports: Sequence[int] = ()
        self.port = 0
        self._turn = 0
        self._lines: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="doorway")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.create_task(self._pass_on(reader, writer))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            with suppress(OSError):
                there, back = await asyncio.open_connection(
                    "127.0.0.1", self._next(), local_addr=(self._source, 0)
                )
                ends.append(back)
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(_copy(reader, back))
                    ways.create_task(_copy(there, writer))
        finally:
            for end in ends:
                end.close()

    def _next(self) -> int:
        ports = self.ports
        if not ports:
            raise ConnectionRefusedError("nobody is behind this door")
        self._turn += 1
        return ports[self._turn % len(ports)]


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until one end is closed, which the other is told of."""
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
