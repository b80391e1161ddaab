"""One request to a receiver, whatever it does: slow, endless, gone, or not what it seems."""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.hosts import is_address
from queue_operator.webhooks.connecting import (
    TRY,
    BoundedConnector,
    GuardedConnector,
    GuardedResolver,
    Lookup,
    SystemLookup,
    TooLong,
    Try,
)
from queue_operator.webhooks.guard import Guard
from queue_operator.webhooks.proxies import Proxies, Proxy

log = logging.getLogger(__name__)

_AGENT: Final = "queue-operator"
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_NO: Final[dict[str, Any]] = {"allow_redirects": False, "raise_for_status": False}
_NO_TIMES: Final = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None)
"""One clock is enough: that of the whole try."""
_SMALLEST_BUFFER: Final = 1024
_HEAD_BYTES: Final = 65_536
"""What an answer may have before its body."""
_REST_S: Final = 1.0
"""For an answer to end once its status is known: it is worth no more than a connection that can be
used again.
"""
_WORDS: Final = (
    (aiohttp.ClientConnectorCertificateError, "its certificate is not valid for it"),
    (aiohttp.ClientSSLError, "TLS with it failed"),
    (ssl.SSLError, "TLS with it failed"),
    (aiohttp.ClientHttpProxyError, "the proxy refused to connect to it"),
    (aiohttp.ClientProxyConnectionError, "the proxy cannot be reached"),
    (aiohttp.ClientConnectorDNSError, "its name cannot be resolved"),
    (socket.gaierror, "its name cannot be resolved"),
    (aiohttp.ClientConnectorError, "it cannot be reached"),
    (aiohttp.ServerDisconnectedError, "it closed the connection without an answer"),
    (aiohttp.ClientConnectionError, "the connection to it broke"),
    (TooLong, "it went on without an answer for longer than anybody reads"),
    (aiohttp.ClientResponseError, "its answer is no HTTP"),
    (aiohttp.ClientPayloadError, "its answer is no HTTP"),
    (aiohttp.InvalidURL, "its URL cannot be asked for"),
    (OSError, "it cannot be reached"),
)
"""By kind of error, the narrow ones first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one request. `error` tells nothing that the receiver wrote: whoever reads it may
    not be who may read there. `refused`: the guard says no.
    """

    status: int | None = None
    error: str = ""
    retry_after_s: float | None = None
    refused: bool = False


@dataclass(slots=True)
class _Heard:
    """What a try has come to."""

    status: int | None = None
    retry_after: str = ""
    error: str = ""


class Poster:
    """Sends requests, several at a time, and never raises for what a receiver does. An async
    context manager.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        total_s: float,
        answer_bytes: int,
        proxies: Proxies | None = None,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Without `proxies` those of the environment are taken, without `lookup` the system is
        asked for names, and without `tls` its authorities are trusted.
        """
        self._guard = guard
        self._total_s = total_s
        self._answer_bytes = answer_bytes
        self._proxies = Proxies.of_environment() if proxies is None else proxies
        self._lookup = lookup
        self._tls = tls
        self._now = now
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        lookup = self._lookup
        if lookup is None:
            system = SystemLookup()
            self._open.callback(system.close)
            lookup = system
        tls = self._tls or ssl.create_default_context()
        self._resolver = GuardedResolver(self._guard, lookup)
        most = _HEAD_BYTES + self._answer_bytes
        direct = GuardedConnector(self._guard, self._resolver, most=most, ssl=tls)
        self._direct = await self._session(direct)
        # It connects to proxies alone, which are mostly inside. Nothing is used again: hosts that
        # share an address would share a connection.
        self._proxied = await self._session(BoundedConnector(most, ssl=tls, force_close=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def _session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        return await self._open.enter_async_context(
            aiohttp.ClientSession(
                connector=connector,
                timeout=_NO_TIMES,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                read_bufsize=max(self._answer_bytes, _SMALLEST_BUFFER),
                headers={"User-Agent": _AGENT, "Accept-Encoding": "identity"},
            )
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """What came of one POST. It takes at most the total time, and reads at most so many bytes
        of the answer as were given.
        """
        try:
            self._guard.check_url("callback_url", url)
            target = URL(url, encoded=True)
        except InvalidArgument as error:
            return Answer(error=f"callback_url {error.reason}", refused=True)
        except ValueError:
            return Answer(error="callback_url is no URL", refused=True)
        trying, heard = Try(target.raw_host or ""), _Heard()
        TRY.set(trying)
        try:
            async with asyncio.timeout(self._total_s):
                await self._ask(trying, target, headers, body, heard)
        except TimeoutError:
            heard.error = f"it did not answer within {self._total_s:g} s"
        except Exception as error:
            heard.error = _told(error)
        return self._judged(heard, trying.refusal)

    def _judged(self, heard: _Heard, refusal: str) -> Answer:
        status = heard.status
        if status is None and refusal:
            return Answer(error=f"refused: {refusal}", refused=True)
        if status is None:
            return Answer(error=heard.error)
        # What it went on to send, or did not, changes nothing: it has answered.
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return Answer(status=status)
        error = f"answered {status}"
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            error += ", and redirects are not followed: give the URL that it leads to"
        return Answer(
            status=status, error=error, retry_after_s=_seconds(heard.retry_after, self._now())
        )

    async def _ask(
        self, trying: Try, url: URL, headers: Mapping[str, str], body: bytes, heard: _Heard
    ) -> None:
        proxy = self._proxies.of(url)
        if proxy is not None:
            return await self._ask_by_way_of(proxy, url, headers, body, heard)
        try:
            await self._exchange(
                self._direct.post(url, headers=headers, data=BytesIO(body), **_NO), heard
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            is_new = bool(trying.allowed) or isinstance(error, aiohttp.ClientConnectorError)
            if is_new or trying.refusal or heard.status is not None:
                raise
            # It was a connection of an earlier message, which the receiver just closed.
            await self._exchange(
                self._direct.post(url, headers=headers, data=BytesIO(body), **_NO), heard
            )

    async def _ask_by_way_of(
        self, proxy: Proxy, url: URL, headers: Mapping[str, str], body: bytes, heard: _Heard
    ) -> None:
        """The proxy is given the address that was allowed, and has no name to ask for; but for a
        name that `allow` has.
        """
        host = url.raw_host or ""
        target = url
        if not is_address(host) and not self._guard.trusts_name(host):
            found = await self._resolver.addresses(host)
            target = url.with_host(min(found, key=lambda one: ":" in one))
        to_proxy = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
        sent = {**headers, "Host": url.raw_authority}
        is_tunnel = url.scheme == "https"
        asking = self._proxied.post(
            target,
            headers=sent if is_tunnel else {**sent, **to_proxy},
            data=BytesIO(body),
            proxy=proxy.url,
            proxy_headers=to_proxy if is_tunnel else None,
            server_hostname=host.removesuffix(".") if is_tunnel else None,
            **_NO,
        )
        await self._exchange(asking, heard)

    async def _exchange(self, asking: Awaitable[aiohttp.ClientResponse], heard: _Heard) -> None:
        response = await asking
        try:
            heard.status = response.status
            heard.retry_after = response.headers.get("Retry-After", "")
            left = self._answer_bytes
            with suppress(TimeoutError):
                async with asyncio.timeout(_REST_S):
                    while left > 0 and (piece := await response.content.read(left)):
                        left -= len(piece)
        finally:
            # The connection of an answer that was read to its end is free by now, and stays open.
            response.close()


def _seconds(text: str, now: datetime) -> float | None:
    """Of a Retry-After: seconds, or a date."""
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds(), 0.0)


def _told(error: Exception) -> str:
    """In a few words of our own."""
    for kind, text in _WORDS:
        if isinstance(error, kind):
            return text
    log.error("a receiver was not asked", exc_info=error)
    return f"it was not asked: {type(error).__name__}"
