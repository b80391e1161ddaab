"""Two probes for Kubernetes: `/healthz`, the process works; `/readyz`, it has a session."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

logger = logging.getLogger(__name__)

REQUEST_S = 5.0


@contextlib.asynccontextmanager
async def serve_health(
    port: int, *, alive: Callable[[], bool], ready: Callable[[], bool], host: str = ""
) -> AsyncIterator[int]:
    """Serves while the context is open and gives the port, a free one for port 0.

    Raises OSError when the port is taken.
    """
    checks = {"/healthz": alive, "/readyz": ready}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, ValueError):
            async with asyncio.timeout(REQUEST_S):
                writer.write(_response(checks, await reader.readline()))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host or None, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _response(checks: dict[str, Callable[[], bool]], request_line: bytes) -> bytes:
    words = request_line.decode("latin-1").split()
    check = checks.get(words[1].partition("?")[0]) if len(words) > 1 else None
    if check is None:
        status, body = "404 Not Found", "try /healthz or /readyz\n"
    elif check():
        status, body = "200 OK", "ok\n"
    else:
        status, body = "503 Service Unavailable", "no\n"
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode()
