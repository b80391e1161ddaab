"""What listens at an address where gRPC found nobody to talk to."""

import asyncio
from contextlib import suppress
from typing import Final

from queue_operator.wire.proxies import way_to
from queue_operator.wire.status import NO_GRPC

NOT_CONNECTED: Final = "failed to connect to all addresses"
_PATIENCE_S: Final = 1.0
_REQUEST: Final = b"GET / HTTP/1.0\r\n\r\n"
_ANSWER: Final = b"HTTP/1"


async def named(address: str, failure: str) -> str:
    """The failure of a connection to `address` (host:port), and what was found instead: a proxy
    that stands before it, or REST that answers there.

    gRPC tells of the address that it tried last. Where `localhost` means two and REST listens
    at one of them, that may be the other, at which nobody does.
    """
    if NOT_CONNECTED not in failure or NO_GRPC in failure:
        return failure
    if way := way_to(address):
        return f"{failure}; {way}"
    return f"{failure}; {NO_GRPC}" if await _speaks_http(address) else failure


async def _speaks_http(address: str) -> bool:
    """Whether an HTTP/1 server answers. What speaks gRPC says nothing of the kind."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(_REQUEST)
                return await reader.readexactly(len(_ANSWER)) == _ANSWER
            finally:
                writer.close()
    return False
