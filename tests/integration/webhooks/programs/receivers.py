"""Receivers of messages, in one process: the path of a URL says how each behaves. `/failing` never
accepts, `/failing/1` accepts what it is told a second time.

Called with a port and a file, to which a record is added for each request that was read, before it
is answered.
"""

import asyncio
import itertools
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from queue_operator.testing.history import Kind, Log

ACCEPTING: Final = frozenset({"good", "slow", "endless"})
"""Who says yes, whatever else they do."""
SLOW_S: Final = 0.3
_YES: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_NO: Final = b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"
_BUSY: Final = b"HTTP/1.1 429 Busy\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n"
_CROWDED: Final = b"HTTP/1.1 429 Busy\r\nretry-after: 6\r\ncontent-length: 0\r\n\r\n"
"""For so short a time that a test can wait for its end."""
_STATUS: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


class Receivers:
    """Writes down who was told what."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reads = Counter[str]()
        # Nobody else keeps a task that waits for nothing.
        self._kept: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._kept.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.split("\r\n")
                given = dict(line.lower().split(": ", 1) for line in lines if line)
                body = (await reader.readexactly(int(given["content-length"]))).decode()
                way = self._way(first.split()[1], given["webhook-id"])
                self._note(way, given, body)
                await self._answer(way, writer)
        except (EOFError, ConnectionError):
            pass
        finally:
            self._kept.discard(asyncio.current_task())
            writer.close()

    def _way(self, path: str, message_id: str) -> str:
        """How it behaves this time."""
        way, _, times = path.strip("/").partition("/")
        self._reads[message_id] += 1
        return "good" if times and self._reads[message_id] > int(times) else way

    def _note(self, way: str, given: dict[str, str], body: str) -> None:
        self._log.write(
            Kind.MESSAGE_READ,
            given["ce-subject"],
            id=given["webhook-id"],
            host=given["host"],
            way=way,
            accepted=way in ACCEPTING,
            body=body,
        )

    async def _answer(self, way: str, writer: asyncio.StreamWriter) -> None:
        match way:
            case "good":
                writer.write(_YES)
            case "slow":
                await pause(SLOW_S)
                writer.write(_YES)
            case "failing":
                writer.write(_NO)
            case "busy":
                writer.write(_BUSY)
            case "crowded":
                writer.write(_CROWDED)
            case "never":
                await asyncio.Event().wait()
            case "closing":
                raise EOFError
            case "endless":
                await send_endlessly(writer, _STATUS + b"\r\n")
            case "endless-head":
                await send_endlessly(writer, _STATUS)
        await writer.drain()


async def send_endlessly(writer: asyncio.StreamWriter, beginning: bytes) -> None:
    """Of headers or of a body: both may be such lines."""
    writer.write(beginning)
    for number in itertools.count():
        writer.write(f"x-{number}: {'a' * 100}\r\n".encode())
        await writer.drain()
        await pause(0.1)


async def pause(seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def main(port: int, path: Path) -> None:
    log = Log(f"receivers-{os.getpid()}", path)
    receivers = Receivers(log)
    server = await asyncio.start_server(receivers.serve, "0.0.0.0", port, backlog=1000)  # noqa: S104
    log.write(Kind.RECEIVER_OPENED)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
