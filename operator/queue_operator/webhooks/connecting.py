"""Connections that the guard has looked at: the addresses of a name, the address that a socket is
made for, and the one that it is connected to in the end.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from ssl import SSLContext
from typing import Any, Final

from aiohttp import ClientPayloadError, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler

from queue_operator.webhooks.guard import Guard

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name. Raises OSError for one that has none."""

AddressOf = tuple[Any, ...]
_LOOKUPS: Final = 128
"""Threads that ask for names. One that nobody answers holds its thread for half a minute, also
when nobody waits for it any more.
"""
_KEPT_S: Final = 5.0


@dataclass(slots=True)
class Try:
    """One try: whom it is for, what the guard let it connect to, and why not, if it did not."""

    host: str
    allowed: set[IPv4Address | IPv6Address] = field(default_factory=set)
    refusal: str = ""


TRY: Final[ContextVar[Try]] = ContextVar("try")


class Refused(OSError):
    """The guard says no."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SystemLookup:
    """What the system answers. Its threads are no others', so that names without an answer hold up
    nothing else.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="webhook-names")

    async def __call__(self, name: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _ask, name)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _ask(name: str) -> list[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(one[4][0]) for one in found]


class GuardedResolver(AbstractResolver):
    """Gives addresses only where all that a name has are allowed: one that is not tells of a name
    that is meant to reach inside.
    """

    def __init__(self, guard: Guard, lookup: Lookup) -> None:
        self._guard = guard
        self._lookup = lookup

    async def addresses(self, host: str) -> Sequence[str]:
        """Raises Refused, and OSError for a name that has none."""
        # With a dot at its end it is never looked for in the domains of the cluster.
        absolute = host if self._guard.trusts_name(host) else f"{host.removesuffix('.')}."
        found = await self._lookup(absolute)
        if not found:
            raise OSError("it has no address")
        for address in found:
            fault = self._guard.judges(address, host)
            if fault is not None:
                raise _refused(fault)
        return found

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self.addresses(host)
        ]

    async def close(self) -> None:
        """What looks names up is whose it was."""


class TooLong(ClientPayloadError):
    """The answer has more bytes than anybody reads."""


class _Handler(ResponseHandler):
    """Takes in `most` bytes for each request, whatever they are: announcements of an answer (1xx)
    are parsed as they come, and may come for ever.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        super().__init__(loop)
        self._most = self._left = most

    def set_response_params(self, **given: Any) -> None:
        self._left = self._most
        super().set_response_params(**given)

    def close(self) -> None:
        """At once: one that takes nothing would otherwise keep a connection on which something is
        left to send, for ever.
        """
        self.abort()

    def data_received(self, data: bytes) -> None:
        part, self._left = data[: max(self._left, 0)], self._left - len(data)
        if part or not data:
            super().data_received(part)
        if self._left < 0 and self.exception() is None:
            self.set_exception(TooLong("it answered more than is read"))
            if self.transport is not None:
                self.transport.abort()


def _handler(loop: asyncio.AbstractEventLoop, most: int) -> ResponseHandler:
    return _Handler(loop, most)


class BoundedConnector(TCPConnector):
    """Of each answer at most `most` bytes are taken in. Of connections there are as many as
    somebody asks for: receivers of one host, which each have their share, do not wait here for each
    other.
    """

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(limit=0, **options)
        self._factory = partial(_handler, asyncio.get_running_loop(), most)


class GuardedConnector(BoundedConnector):
    """Connects to nothing that the guard does not allow, and hands on no connection that ended up
    elsewhere.
    """

    def __init__(
        self,
        guard: Guard,
        resolver: GuardedResolver,
        *,
        most: int,
        ssl: SSLContext,
    ) -> None:
        super().__init__(
            most,
            ssl=ssl,
            resolver=resolver,
            use_dns_cache=False,
            keepalive_timeout=_KEPT_S,
            socket_factory=self._socket,
        )
        self._guard = guard

    def _socket(self, info: tuple[Any, Any, int, str, AddressOf]) -> socket.socket:
        """The last look before the system is told to connect, and the address it is told."""
        family, kind, protocol, _, (address, port, *_) = info
        trying = TRY.get()
        fault = self._guard.allows(address, port, trying.host)
        if fault is not None:
            raise _refused(fault)
        trying.allowed.add(ip_address(address))
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    async def _wrap_create_connection(
        self, *args: Any, timeout: ClientTimeout, **kwargs: Any
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        transport, protocol = await super()._wrap_create_connection(
            *args, timeout=timeout, **kwargs
        )
        peer = transport.get_extra_info("peername")
        if not peer or ip_address(peer[0]) not in TRY.get().allowed:
            transport.abort()
            raise _refused("the connection led to another address than the one it was made for")
        return transport, protocol


def _refused(reason: str) -> Refused:
    """Kept with the try too: what makes connections wraps errors, and joins those of addresses."""
    TRY.get().refusal = reason
    return Refused(reason)
