"""Through a proxy: what it is asked for, and what it is not."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.authority import Authority
from tests.unit.webhooks.names import Client, name_server
from tests.unit.webhooks.receivers import OK, Behaviour, Heard, answering, read_request, receiver
from yarl import URL

from queue_operator.domain.reach import Reach
from queue_operator.webhooks.guard import Guard
from queue_operator.webhooks.posting import Answer, Poster
from queue_operator.webhooks.proxies import Proxies

OUTSIDE = "127.0.0.8"
NAME = "hooks.example.com"


async def tunnel(heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """CONNECT, and bytes both ways."""
    request = await read_request(heard, reader)
    assert request is not None
    host, _, port = request[0].split(" ")[1].rpartition(":")
    theirs, to_them = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.write(b"HTTP/1.1 200 Go on\r\n\r\n")

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while piece := await source.read(65_536):
            target.write(piece)

    ways = [
        asyncio.create_task(pass_on(reader, to_them)),
        asyncio.create_task(pass_on(theirs, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        to_them.transport.abort()


@asynccontextmanager
async def behind(
    monkeypatch: pytest.MonkeyPatch,
    behave: Behaviour,
    addresses: Sequence[str],
    *,
    allow: Sequence[str] = (OUTSIDE,),
    tls: ssl.SSLContext | None = None,
    no_proxy: str = "",
) -> AsyncIterator[tuple[Poster, Heard]]:
    """A poster whose environment names a proxy, and the proxy."""
    async with receiver(behave) as proxy, name_server({NAME: [addresses]}) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name.lower(), raising=False)
            monkeypatch.setenv(name, f"http://user:p%40ss@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setenv("NO_PROXY", no_proxy)
        guard = Guard(Reach.of(allow, ports=[], http=True))
        async with Poster(
            guard, total_s=60, answer_bytes=4096, lookup=Client(server.address), tls=tls
        ) as poster:
            yield poster, proxy


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("name", [NAME, f"{NAME}."])
async def test_a_proxy_is_asked_for_the_address_and_tls_is_with_the_name(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, name: str
) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*authority.issue("receiver", NAME))
    trusting = ssl.create_default_context(cafile=str(authority.file))
    async with (
        receiver(answering(OK), host=OUTSIDE, tls=serving) as heard,
        behind(monkeypatch, tunnel, [OUTSIDE], tls=trusting) as (poster, proxy),
    ):
        answer = await poster.post(f"https://{name}:{heard.port}/a?b", {"webhook-id": "m"}, b"{}")
    assert answer == Answer(status=200)
    line, headers, _ = proxy.requests[0]
    assert line == f"CONNECT {OUTSIDE}:{heard.port} HTTP/1.1"
    assert headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"
    line, headers, body = heard.requests[0]
    assert (line, headers["host"], body) == ("POST /a?b HTTP/1.1", f"{name}:{heard.port}", b"{}")
    assert "proxy-authorization" not in headers


async def test_http_is_asked_for_by_its_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with behind(monkeypatch, answering(OK), [OUTSIDE]) as (poster, proxy):
        assert await poster.post(f"http://{NAME}:8080/a", {}, b"{}") == Answer(status=200)
    line, headers, _ = proxy.requests[0]
    assert line == f"POST http://{OUTSIDE}:8080/a HTTP/1.1"
    assert headers["host"] == f"{NAME}:8080"
    assert headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("addresses", [["127.0.0.1"], [OUTSIDE, "10.0.0.1"], ["169.254.169.254"]])
async def test_a_proxy_is_not_asked_for_what_leads_inside(
    monkeypatch: pytest.MonkeyPatch, scheme: str, addresses: Sequence[str]
) -> None:
    async with behind(monkeypatch, answering(OK), addresses) as (poster, proxy):
        answer = await poster.post(f"{scheme}://{NAME}/", {}, b"{}")
    assert (answer.refused, proxy.connections) == (True, 0)


async def test_a_name_that_was_opened_is_left_to_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with behind(monkeypatch, answering(OK), [], allow=[NAME]) as (poster, proxy):
        assert (await poster.post(f"http://{NAME}/", {}, b"{}")).status == 200
    assert proxy.requests[0][0] == f"POST http://{NAME}/ HTTP/1.1"


async def test_what_no_proxy_names_is_asked_directly_and_guarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        receiver(answering(OK), host=OUTSIDE) as heard,
        behind(monkeypatch, answering(OK), [OUTSIDE], no_proxy=".example.com") as (poster, proxy),
    ):
        assert (await poster.post(f"http://{NAME}:{heard.port}/", {}, b"{}")).status == 200
        assert (await poster.post("http://127.0.0.1:1/", {}, b"{}")).refused
    assert (len(heard.requests), proxy.connections) == (1, 0)


@pytest.mark.parametrize(
    "refusal", [b"HTTP/1.1 403 No\r\n\r\n", b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n"]
)
async def test_a_proxy_that_refuses_is_told_of_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusal: bytes
) -> None:
    async with behind(monkeypatch, answering(refusal, close=True), [OUTSIDE]) as (poster, _):
        answer = await poster.post(f"https://{NAME}/", {}, b"{}")
    assert answer == Answer(error="the proxy refused to connect to it")


async def test_a_proxy_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver(answering(OK)) as gone:
        pass
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{gone.port}")
    guard = Guard(Reach.of([OUTSIDE], ports=[]))
    async with Poster(guard, total_s=60, answer_bytes=9) as poster:
        answer = await poster.post(f"https://{OUTSIDE}/", {}, b"{}")
    assert answer == Answer(error="the proxy cannot be reached")


@pytest.mark.parametrize(
    ("no", "url", "excepted"),
    [
        ("", "https://a.example/", False),
        ("*", "https://a.example/", True),
        ("a.example", "https://a.example/", True),
        ("a.example", "https://A.example./", True),
        ("b.example, a.example", "https://a.example/", True),
        ("example", "https://a.example/", True),
        (".example", "https://a.example/", True),
        ("*.example", "https://a.example/", True),
        ("a.example", "https://ba.example/", False),
        ("a.example:443", "https://a.example/", True),
        ("a.example:8443", "https://a.example/", False),
        ("10.0.0.0/8", "https://10.1.2.3/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("::1", "https://[::1]/", True),
        ("[::1]", "https://[::1]/", True),
        (",", "https://a.example/", False),
    ],
)
def test_who_is_excepted(
    monkeypatch: pytest.MonkeyPatch, no: str, url: str, excepted: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no)
    found = Proxies.of_environment().of(URL(url))
    assert (found is None) is excepted
    if found is not None:
        assert str(found.url) == "http://proxy.example:3128"


def test_the_password_of_a_proxy_is_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:geheim@proxy.example")
    proxies = Proxies.of_environment()
    assert "geheim" not in repr(proxies)
    assert "Z2VoZWlt" not in repr(proxies)


@pytest.mark.parametrize("text", ["socks5://geheim@a", "http://", "http://geheim@:x", "http://[a"])
def test_what_is_no_proxy_stops_the_start(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("https_proxy", text)
    with pytest.raises(ValueError, match="HTTPS_PROXY") as raised:
        Proxies.of_environment()
    assert "geheim" not in str(raised.value)
