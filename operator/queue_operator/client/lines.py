"""Streams that are open, for both clients."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import httpx

from queue_operator.client.credentials import Token, authorization
from queue_operator.client.listening import Hear, Leave, Listen
from queue_operator.client.protocol import Call, Reply, headers_of

Heard = Listen | Hear | Leave
MANY = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""A stream has a connection of its own: those of the usual pool are for what ends."""


def request_of(
    http: httpx.Client | httpx.AsyncClient, call: Call, token: Token, **more: Any
) -> httpx.Request:
    """`call` as it is sent, with the credentials of now."""
    return http.build_request(
        call.method,
        call.path,
        params=call.params,
        content=call.content,
        headers=headers_of(call, authorization(token)),
        **more,
    )


def _request(http: httpx.Client | httpx.AsyncClient, step: Listen, token: Token) -> httpx.Request:
    usual = http.timeout
    bounds = httpx.Timeout(
        connect=usual.connect, write=usual.write, pool=usual.pool, read=step.silence_s
    )
    request = request_of(http, step.call, token, timeout=bounds)
    request.headers.update(step.headers)
    return request


class Line:
    """At most one stream."""

    def __init__(self, http: httpx.Client, token: Token) -> None:
        self._http, self._token = http, token
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def do(self, step: Heard) -> Reply:
        """Never raises for what the server or the network does."""
        try:
            if isinstance(step, Listen):
                return self._open(step)
            if isinstance(step, Hear):
                return Reply(chunk=next(self._chunks, b""))
        except httpx.RequestError as error:
            return Reply(failure=error)
        self.close()
        return Reply()

    def close(self) -> None:
        """Leaves the stream, if one is open."""
        response, self._response = self._response, None
        if response is not None:
            with suppress(httpx.RequestError):
                response.close()

    def _open(self, step: Listen) -> Reply:
        self.close()
        response = self._http.send(_request(self._http, step, self._token), stream=True)
        self._response = response
        if not response.is_success:
            response.read()
            self.close()
        else:
            self._chunks = response.iter_bytes()
        return Reply(response)


class AsyncLine:
    """`Line` for asyncio."""

    def __init__(self, http: httpx.AsyncClient, token: Token) -> None:
        self._http, self._token = http, token
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def do(self, step: Heard) -> Reply:
        """Never raises for what the server or the network does."""
        try:
            if isinstance(step, Listen):
                return await self._open(step)
            if isinstance(step, Hear) and self._chunks is not None:
                return Reply(chunk=await anext(self._chunks, b""))
        except httpx.RequestError as error:
            return Reply(failure=error)
        await self.close()
        return Reply()

    async def close(self) -> None:
        """Leaves the stream, if one is open."""
        response, self._response = self._response, None
        if response is not None:
            with suppress(httpx.RequestError):
                await response.aclose()

    async def _open(self, step: Listen) -> Reply:
        await self.close()
        request = _request(self._http, step, self._token)
        response = await self._http.send(request, stream=True)
        self._response = response
        if not response.is_success:
            await response.aread()
            await self.close()
        else:
            self._chunks = response.aiter_bytes()
        return Reply(response)
