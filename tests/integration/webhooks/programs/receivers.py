"""Receivers of messages, in one process: those of 127.0.1.* are good, each other path misbehaves.

Called with a port and a file, to which a line of JSON is added for each request that was read:
when, to which host, with which id, about which job, and the body.
"""

import asyncio
import itertools
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

_YES: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_NO: Final = b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"
_BUSY: Final = b"HTTP/1.1 429 Busy\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n"
_ENDLESS: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"


class Receivers:
    """Writes down who was told what."""

    def __init__(self, log: TextIO) -> None:
        self._log = log
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
                note = time.time(), given["host"], given["webhook-id"], given["ce-subject"], body
                print(json.dumps(note), file=self._log, flush=True)
                await self._answer(first.split()[1], writer)
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        match path.strip("/"):
            case "good":
                writer.write(_YES)
            case "failing":
                writer.write(_NO)
            case "busy":
                writer.write(_BUSY)
            case "never":
                await asyncio.Event().wait()
            case "closing":
                raise EOFError
            case "endless":
                writer.write(_ENDLESS)
                for _ in itertools.count():
                    writer.write(b"a" * 100)
                    await writer.drain()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await asyncio.Event().wait()
        await writer.drain()


async def main(port: int, log: Path) -> None:
    with log.open("a") as file:
        receivers = Receivers(file)
        server = await asyncio.start_server(receivers.serve, "0.0.0.0", port, backlog=1000)  # noqa: S104
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
