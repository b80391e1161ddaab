"""Receivers that misbehave in every way, on real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Behaviour = Callable[["Heard", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Heard:
    """What a receiver has seen."""

    port: int = 0
    connections: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    sent: int = 0
    """Bytes that were sent in answer."""


async def read_request(
    heard: Heard, reader: asyncio.StreamReader
) -> tuple[str, dict[str, str], bytes] | None:
    """First line, headers and body; None when the connection ended."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    headers = {
        name.lower(): text for name, _, text in (line.partition(": ") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    heard.requests.append((head[0], headers, body))
    return heard.requests[-1]


def answering(*answers: bytes, close: bool = False) -> Behaviour:
    """Each request with the next of the answers, the last one again and again."""

    async def behave(
        heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while await read_request(heard, reader):
            writer.write(answers[min(len(heard.requests), len(answers)) - 1])
            await writer.drain()
            if close:
                return

    return behave


def endless(start: bytes, piece: bytes) -> Behaviour:
    """Goes on answering for as long as somebody reads."""

    async def behave(
        heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await read_request(heard, reader)
        writer.write(start)
        while True:
            writer.write(piece)
            heard.sent += len(piece)
            await writer.drain()

    return behave


async def silent(heard: Heard, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Takes what it is sent, and never answers."""
    while await reader.read(65_536):
        pass


async def deaf(heard: Heard, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Does not even read."""
    await asyncio.Event().wait()


async def closing(_: Heard, __: asyncio.StreamReader, ___: asyncio.StreamWriter) -> None:
    """Closes at once."""


@asynccontextmanager
async def receiver(
    behave: Behaviour, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Heard]:
    """Until the end, on a port of its own unless one is given."""
    heard = Heard()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        heard.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await behave(heard, reader, writer)
        finally:
            serving.discard(task)
            writer.transport.abort() if tls else writer.close()

    server = await asyncio.start_server(serve, host, port, ssl=tls)
    heard.port = server.sockets[0].getsockname()[1]
    try:
        yield heard
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
