"""`python -m bench.programs.receiver PORT`: takes every message, and does nothing with it."""

import asyncio
import os
import sys
from typing import Final

_NICE: Final = 10
"""It would be on another machine."""
_YES: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(_YES)
            await writer.drain()
    except (EOFError, ConnectionError):
        writer.close()


async def main(port: int) -> None:
    os.nice(_NICE)
    server = await asyncio.start_server(_serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
