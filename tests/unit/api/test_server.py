"""How long a connection is kept that nobody uses."""

import asyncio

from fastapi import FastAPI

from queue_operator.api.server import RestServer
from queue_operator.settings import RestSettings

A_BALANCERS_MINUTE_S = 61.0
REQUEST = b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Hasty(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(REQUEST)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(line for line in head.splitlines() if line.startswith("content-length"))
    await reader.readexactly(int(length.partition(":")[2]))
    return head.startswith("HTTP/1.1 200")


async def kept_for_a_minute_and_not_for_ever(loop: Hasty) -> None:
    settings = RestSettings(host="127.0.0.1", port=0)
    server = RestServer(FastAPI(), settings, keep_alive_s=settings.keep_alive_s)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert await answered(reader, writer)
    loop.ahead_s += A_BALANCERS_MINUTE_S
    assert await answered(reader, writer)
    loop.ahead_s += settings.keep_alive_s + 1
    assert await reader.read() == b""
    writer.close()
    await server.stop()


def test_a_connection_outlives_a_load_balancers_minute() -> None:
    loop = Hasty()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(kept_for_a_minute_and_not_for_ever(loop))
