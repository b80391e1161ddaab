"""One request, whatever the receiver does."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.webhooks.receivers import (
    OK,
    Behaviour,
    Heard,
    answering,
    closing,
    deaf,
    endless,
    read_request,
    receiver,
    silent,
)
from tests.waiting import until

from queue_operator.domain.reach import Reach
from queue_operator.webhooks.guard import Guard
from queue_operator.webhooks.posting import Answer, Poster
from queue_operator.webhooks.proxies import Proxies

_SHORT_S = 0.3
_LONG_S = 60.0
_BYTES = 4096
_NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@asynccontextmanager
async def a_poster(*allow: str, total_s: float = _LONG_S) -> AsyncIterator[Poster]:
    guard = Guard(Reach.of(allow or ["127.0.0.1"], ports=[], http=True))
    async with Poster(
        guard, total_s=total_s, answer_bytes=_BYTES, proxies=Proxies.none(), now=lambda: _NOW
    ) as poster:
        yield poster


async def told(behave: Behaviour, total_s: float = _LONG_S, body: bytes = b"{}") -> Answer:
    async with receiver(behave) as heard, a_poster(total_s=total_s) as poster:
        return await poster.post(f"http://127.0.0.1:{heard.port}/done", {}, body)


async def test_a_message_arrives_as_it_was_given() -> None:
    async with receiver(answering(OK)) as heard, a_poster() as poster:
        url = f"http://127.0.0.1:{heard.port}/a%2Fb//c?d=%7e&e=f"
        headers = {"webhook-id": "m", "content-type": "application/json"}
        assert await poster.post(url, headers, b'{"a":1}') == Answer(status=200)
    line, sent, body = heard.requests[0]
    assert line == "POST /a%2Fb//c?d=%7e&e=f HTTP/1.1"
    assert body == b'{"a":1}'
    assert headers.items() <= sent.items()
    assert sent["user-agent"] == "queue-operator"
    assert sent["host"] == f"127.0.0.1:{heard.port}"


async def test_a_connection_is_used_again() -> None:
    async with receiver(answering(OK)) as heard, a_poster() as poster:
        for _ in range(3):
            await poster.post(f"http://127.0.0.1:{heard.port}/", {}, b"{}")
    assert (heard.connections, len(heard.requests)) == (1, 3)


async def test_a_connection_that_was_closed_meanwhile_costs_no_try() -> None:
    async with receiver(answering(OK, close=True)) as heard, a_poster() as poster:
        url = f"http://127.0.0.1:{heard.port}/"
        assert [(await poster.post(url, {}, b"{}")).status for _ in range(5)] == [200] * 5
    assert len(heard.requests) == 5


async def test_nothing_is_kept_of_what_a_receiver_sets() -> None:
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    async with receiver(answering(answer)) as heard, a_poster() as poster:
        for _ in range(2):
            await poster.post(f"http://127.0.0.1:{heard.port}/", {}, b"{}")
    assert not any("cookie" in headers for _, headers, _ in heard.requests)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_it_was_told(status: int) -> None:
    answer = b"HTTP/1.1 %d Fine\r\nContent-Length: 0\r\n\r\n" % status
    assert await told(answering(answer)) == Answer(status=status)


@pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 500, 503, 599])
async def test_it_failed_and_what_it_wrote_is_told_to_nobody(status: int) -> None:
    answer = b"HTTP/1.1 %d Geheim\r\nContent-Length: 6\r\n\r\ngeheim" % status
    assert await told(answering(answer)) == Answer(status=status, error=f"answered {status}")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with receiver(answering(OK)) as inside:
        place = f"http://127.0.0.1:{inside.port}/".encode()
        answer = b"HTTP/1.1 %d Go\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, place)
        heard = await told(answering(answer))
        assert (inside.connections, heard.status, heard.refused) == (0, status, False)
    assert "redirects are not followed" in heard.error


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Thu, 01 Jan 2026 12:01:30 GMT", 90.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("-5", None),
        ("soon", None),
        ("1e9", None),
        ("9" * 30, None),
        ("Thu, 99 Jan 2026 12:01:30 GMT", None),
        (f"Thu, 01 Jan {'9' * 20} 12:01:30 GMT", None),
        (f"Thu, 01 Jan 2026 12:01:30 +{'9' * 20}", None),
    ],
)
async def test_how_long_it_asks_to_wait(text: str, seconds: float | None) -> None:
    answer = f"HTTP/1.1 429 Slow\r\nRetry-After: {text}\r\nContent-Length: 0\r\n\r\n".encode()
    assert (await told(answering(answer))).retry_after_s == seconds


@pytest.mark.parametrize("behave", [silent, deaf], ids=["silent", "deaf"])
@pytest.mark.parametrize("body", [b"{}", b"x" * 8_000_000], ids=["small", "large"])
async def test_one_that_never_answers_is_left_after_the_total_time(
    behave: Behaviour, body: bytes
) -> None:
    assert await told(behave, _SHORT_S, body) == Answer(error="it did not answer within 0.3 s")


@pytest.mark.parametrize(
    "behave",
    [
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 200),
        endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 200),
    ],
    ids=["continue", "hints"],
)
async def test_one_that_always_has_more_to_say_before_it_answers(behave: Behaviour) -> None:
    answer = await told(behave)
    assert answer == Answer(error="it went on without an answer for longer than anybody reads")


def sockets() -> int:
    """That this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link.readlink()).startswith("socket:") for link in links)


async def test_no_connection_is_kept_to_one_that_takes_nothing_and_never_ends() -> None:
    many, body = 4, b"x" * 8_000_000
    async with receiver(deaf) as heard, a_poster(total_s=_SHORT_S) as poster:
        before = sockets()
        for _ in range(many):
            await poster.post(f"http://127.0.0.1:{heard.port}/", {}, body)

        async def are_closed() -> bool:
            await asyncio.to_thread(os.sched_yield)
            return heard.connections == many == sockets() - before  # the receiver's own

        await until(are_closed)


async def slow_drip(_: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"{}")
    for letter in OK:
        writer.write(bytes([letter]))
        await writer.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHORT_S / 4):
                await reader.read()  # until the other side has enough
                return


async def test_one_that_answers_letter_by_letter_is_left_after_the_total_time() -> None:
    assert (await told(slow_drip, _SHORT_S)).error == "it did not answer within 0.3 s"


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
    ],
)
async def test_of_an_endless_answer_a_little_is_read_and_it_was_told(start: bytes) -> None:
    async with receiver(endless(start, b"x" * 1024)) as heard, a_poster() as poster:
        answer = await poster.post(f"http://127.0.0.1:{heard.port}/", {}, b"{}")
        assert answer == Answer(status=200)
        # The system's buffers hold the rest.
        assert heard.sent < 16 * 1024 * 1024
        again = await poster.post(f"http://127.0.0.1:{heard.port}/", {}, b"{}")
    assert (again.status, heard.connections) == (200, 2)


async def drip_after_the_status(
    _: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await reader.readuntil(b"{}")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHORT_S / 4):
                await reader.read()  # until the other side has enough
                return


@pytest.mark.parametrize(
    "behave",
    [
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegins"),
        drip_after_the_status,
    ],
    ids=["stalls", "drips"],
)
async def test_a_body_without_an_end_takes_little_time_and_changes_nothing(
    behave: Behaviour,
) -> None:
    """Else so few receivers that answer like this would take all places."""
    async with asyncio.timeout(_LONG_S / 2):
        assert await told(behave, _LONG_S) == Answer(status=200)
    assert await told(behave, _SHORT_S) == Answer(status=200)


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "its answer is no HTTP"),
        (endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1024), "its answer is no HTTP"),
        (endless(b"", b"y" * 1024), "its answer is no HTTP"),
        (answering(b"HTTP/9.9 banana\r\n\r\n"), "its answer is no HTTP"),
        (answering(b"\r\n\0\0\0\r\n", close=True), "its answer is no HTTP"),
        (answering(b"HTTP/1.1 200 OK\r\nX", close=True), "it closed the connection without"),
        (closing, "it closed the connection without an answer"),
    ],
    ids=["headers", "header", "line", "version", "zeros", "half", "closing"],
)
async def test_one_that_speaks_no_http(behave: Behaviour, error: str) -> None:
    answer = await told(behave)
    assert (answer.status, answer.refused) == (None, False)
    assert answer.error.startswith(error) or "connection to it broke" in answer.error


async def test_one_that_is_not_there() -> None:
    async with receiver(closing) as gone:
        port = gone.port
    async with a_poster() as poster:
        answer = await poster.post(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert answer == Answer(error="it cannot be reached")


async def test_good_ones_are_not_delayed_by_any_of_them() -> None:
    bad: Sequence[Behaviour] = (
        silent,
        deaf,
        slow_drip,
        endless(b"", b"HTTP/1.1 100 A\r\n\r\n" * 200),
    )
    async with AsyncExitStack() as stack:
        urls = []
        for behave in (*bad, answering(OK)):
            heard = await stack.enter_async_context(receiver(behave))
            urls.append(f"http://127.0.0.1:{heard.port}/")
        poster = await stack.enter_async_context(a_poster(total_s=2 * _LONG_S))
        waiting = [
            asyncio.create_task(poster.post(url, {}, b"{}")) for url in urls[:-1] for _ in range(20)
        ]
        async with asyncio.timeout(_LONG_S):
            answers = await asyncio.gather(*(poster.post(urls[-1], {}, b"{}") for _ in range(50)))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    assert {answer.status for answer in answers} == {200}


async def test_of_one_host_those_that_answer_do_not_wait_for_those_that_do_not() -> None:
    """Receivers of several namespaces may be one host."""
    stuck = asyncio.Event()

    async def some_paths(
        heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = await read_request(heard, reader)
        if request is not None and "/stuck" in request[0]:
            await stuck.wait()
        writer.write(OK)

    async with receiver(some_paths) as heard, a_poster() as poster:
        url = f"http://127.0.0.1:{heard.port}"
        waiting = [asyncio.create_task(poster.post(f"{url}/stuck", {}, b"{}")) for _ in range(100)]
        async with asyncio.timeout(_LONG_S / 2):
            assert await poster.post(f"{url}/good", {}, b"{}") == Answer(status=200)
        assert not any(task.done() for task in waiting)
        stuck.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://a/", "https://10.0.0.1/", "http://2130706433/", "https://[::1%251]/"]
)
async def test_a_url_that_the_guard_does_not_take_is_refused_again(url: str) -> None:
    async with a_poster("127.0.0.1") as poster:
        answer = await poster.post(url, {}, b"{}")
    assert (answer.status, answer.refused) == (None, True)
    assert "callback_url" in answer.error
