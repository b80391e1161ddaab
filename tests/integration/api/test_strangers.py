"""What somebody who only connects can cost the HTTP ports: a place, for a while."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI, Request, Response
from tests.chaos.proxy import waited
from tests.waiting import DEADLINE_S

from queue_operator.api import server as module
from queue_operator.api.server import RestServer
from queue_operator.settings import RestSettings

HEAD_S, BODY_S = 0.3, 0.6
LONG = 16 * 1024 * 1024
"""More than the system takes of an answer that nobody reads."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (module.HEAD_S, module.BODY_SILENCE_S, module.UNREAD_S) == (10.0, 30.0, 30.0)
    monkeypatch.setattr(module, "HEAD_S", HEAD_S)
    monkeypatch.setattr(module, "UNREAD_S", BODY_S)
    monkeypatch.setattr(module, "BODY_SILENCE_S", BODY_S)


@asynccontextmanager
async def serving(connections: int = 100) -> AsyncIterator[RestServer]:
    app = FastAPI()

    @app.post("/")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.get("/long")
    async def long() -> Response:
        return Response(bytes(LONG))

    server = RestServer(app, RestSettings(host="127.0.0.1", port=0), connections=connections)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def connected(server: RestServer) -> Connection:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def told(connection: Connection) -> bytes:
    """All that the server says until it hangs up."""
    reader, writer = connection
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"POST / HT",
        b"POST / HTTP/1.1\r\nHost: a\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
    ],
)
async def test_whoever_does_not_go_on_is_hung_up_on(said: bytes) -> None:
    async with serving() as server:
        connection = await connected(server)
        connection[1].write(said)
        assert await told(connection) == b""


@pytest.mark.parametrize("asked", ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"])
async def test_line_breaks_after_an_answer_do_not_keep_a_connection(asked: str) -> None:
    async with serving() as server:
        reader, writer = await connected(server)
        writer.write(LASTING.replace(b"Host", asked.encode() + b"Host"))
        async with asyncio.timeout(DEADLINE_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        over = asyncio.create_task(told((reader, writer)))
        while not over.done():
            writer.write(b"\r\n")
            await asyncio.wait([over], timeout=HEAD_S / 5)
        assert await over in (b"0", b"1")


async def test_bytes_that_trickle_do_not_prolong_a_head() -> None:
    async with serving() as server:
        connection = await connected(server)
        over = asyncio.create_task(told(connection))
        connection[1].write(b"POST / HTTP/1.1\r\nX: ")
        while not over.done():
            connection[1].write(b"x")
            await asyncio.wait([over], timeout=HEAD_S / 5)
        assert await over == b""


async def test_a_body_that_goes_on_is_read_to_its_end() -> None:
    async with serving() as server:
        reader, writer = await connected(server)
        writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\n"
        )
        for _ in range(6):
            # All of it takes longer than a pause may.
            assert not await waited(asyncio.Event(), BODY_S / 4)
            writer.write(b"x")
        assert (await told((reader, writer))).endswith(b"6")


ASKED = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\n"
LASTING = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All have the time that they want, so it is their number that ends them."""
    monkeypatch.setattr(module, "HEAD_S", 600.0)
    monkeypatch.setattr(module, "BODY_SILENCE_S", 600.0)
    monkeypatch.setattr(module, "UNREAD_S", 600.0)


@pytest.mark.usefixtures("patient")
async def test_who_only_connects_gives_way_to_who_asks() -> None:
    async with serving(connections=2) as server:
        first, second = await connected(server), await connected(server)
        for _, writer in (first, second):
            writer.write(b"POST / HT")
        caller = await connected(server)
        caller[1].write(ASKED + b"x")
        assert (await told(caller)).startswith(b"HTTP/1.1 200")
        # The one that has waited for longest.
        assert await told(first) == b""
        assert not second[0].at_eof()
        second[1].close()


@pytest.mark.usefixtures("patient")
async def test_above_the_number_who_asks_is_not_hung_up_on_and_the_next_one_is() -> None:
    async with serving(connections=2) as server:
        asking = [await connected(server) for _ in range(2)]
        for reader, writer in asking:
            writer.write(ASKED.replace(b"Host", b"Expect: 100-continue\r\nHost"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await told(await connected(server)) == b""
        for connection in asking:
            connection[1].write(b"x")
            assert (await told(connection)).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("patient")
async def test_between_two_requests_a_connection_may_have_to_give_way() -> None:
    async with serving(connections=1) as server:
        kept = await connected(server)
        for _ in range(2):
            kept[1].write(LASTING)
            async with asyncio.timeout(DEADLINE_S):
                assert (await kept[0].readuntil(b"\r\n\r\n1")).startswith(b"HTTP/1.1 200")
        caller = await connected(server)
        caller[1].write(ASKED + b"x")
        assert (await told(caller)).startswith(b"HTTP/1.1 200")
        assert await told(kept) == b""


class Deaf(asyncio.Protocol):
    """Asks, reads the beginning of the answer, and no more of it until it is told to."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if not self.begun.is_set():
            self.transport.pause_reading()
            self.begun.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    async def read_on(self) -> int:
        """How many bytes there are until the server hangs up."""
        self.transport.resume_reading()
        async with asyncio.timeout(DEADLINE_S):
            await self.ended.wait()
        return self.bytes


async def deaf(server: RestServer, said: bytes) -> Deaf:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(Deaf, "127.0.0.1", server.port)
    protocol.transport.write(said)
    async with asyncio.timeout(DEADLINE_S):
        await protocol.begun.wait()
    return protocol


ASKED_LONG = b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n"
ASKED_LONG_ONCE = b"GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("said", [ASKED_LONG, ASKED_LONG_ONCE, ASKED_LONG * 3])
async def test_whoever_does_not_read_its_answer_is_hung_up_on(said: bytes) -> None:
    async with serving() as server:
        connection = await deaf(server, said)
        # Its end cannot be seen by who does not read.
        assert not await waited(asyncio.Event(), BODY_S * 4)
        assert await connection.read_on() < LONG


async def test_an_answer_that_is_read_slowly_is_sent_to_its_end() -> None:
    async with serving() as server:
        connection = await deaf(server, ASKED_LONG_ONCE)
        for _ in range(6):
            # All of it takes longer than a pause may.
            connection.begun.clear()
            connection.transport.resume_reading()
            async with asyncio.timeout(DEADLINE_S):
                await connection.begun.wait()
            assert not await waited(asyncio.Event(), BODY_S / 3)
        assert await connection.read_on() > LONG


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("said", [ASKED_LONG, ASKED_LONG_ONCE])
async def test_who_does_not_read_its_answer_gives_way_to_who_asks(said: bytes) -> None:
    async with serving(connections=1) as server:
        connection = await deaf(server, said)
        caller = await connected(server)
        caller[1].write(ASKED + b"x")
        assert (await told(caller)).startswith(b"HTTP/1.1 200")
        assert await connection.read_on() < LONG


async def test_requests_that_are_sent_ahead_have_a_number() -> None:
    async with serving() as server:
        few = await connected(server)
        few[1].write(LASTING * module.MOST_AHEAD + ASKED + b"x")
        answers = await told(few)
        assert answers.count(b"HTTP/1.1 200 OK") == module.MOST_AHEAD + 1
        many = await connected(server)
        many[1].write(LASTING * (module.MOST_AHEAD + 2))
        assert await told(many) == b""
