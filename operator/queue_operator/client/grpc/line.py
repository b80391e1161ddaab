"""The connection of a client: made when it is needed, made anew when the certificates change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import grpc

from queue_operator.backends.forks import Birthplace
from queue_operator.domain.errors import Unavailable
from queue_operator.wire.tls import ClientTls
from queue_operator.wire.v1.queue_pb2_grpc import QueueStub

if TYPE_CHECKING:
    from queue_operator.wire.v1.queue_pb2_grpc import QueueAsyncStub

_METADATA_BYTES: Final = 4 * 1024 * 1024
"""The error of a large batch names every position that is wrong with it."""


class _Channel:
    """A channel, the files it was made of, and how many calls are on it."""

    def __init__(self, channel: grpc.aio.Channel, stamp: tuple[int, ...]) -> None:
        self.channel = channel
        self.stamp = stamp
        self.stub = QueueStub(channel)
        self.calls = 0


class Line:
    """Gives calls a channel. `keepalive_s` is how long a silent connection is believed in; one
    that does not answer then for half as long again is given up, and its calls fail.
    """

    def __init__(self, address: str, tls: ClientTls | None, keepalive_s: float) -> None:
        self.address = address
        self._tls = tls
        self._options = _options(keepalive_s)
        self._current: _Channel | None = None
        self._retired: set[_Channel] = set()
        self.birthplace = Birthplace("this GrpcQueue")
        self.closed = False

    @asynccontextmanager
    async def call(self) -> "AsyncIterator[QueueAsyncStub]":
        """The stub for one call; its channel stays until the call is over. Raises WrongProcess."""
        self.birthplace.check()
        channel = await self._channel()
        channel.calls += 1
        try:
            yield channel.stub
        finally:
            channel.calls -= 1
            await self._close_unused()

    async def close(self) -> None:
        """Ends the calls under way."""
        self.closed = True
        if self._current is not None:
            self._retired.add(self._current)
            self._current = None
        retired, self._retired = self._retired, set()
        await asyncio.gather(*(one.channel.close() for one in retired))

    async def _channel(self) -> _Channel:
        """The current one while its files are what they were; as long as new ones cannot be
        read, too.
        """
        current = self._current
        try:
            stamp = self._tls.stamp() if self._tls is not None else ()
            if current is not None and current.stamp == stamp:
                return current
            fresh = _Channel(self._open(), stamp)
        except OSError as error:
            if current is None:
                raise Unavailable(f"a file of the TLS settings: {error}") from error
            return current
        if current is not None:
            self._retired.add(current)
        self._current = fresh
        return fresh

    def _open(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self.address, options=self._options)
        options = [*self._options, *self._tls.options()]
        return grpc.aio.secure_channel(self.address, self._tls.credentials(), options=options)

    async def _close_unused(self) -> None:
        unused = {one for one in self._retired if not one.calls}
        self._retired -= unused
        for one in unused:
            await one.channel.close()


def _options(keepalive_s: float) -> list[tuple[str, int | str]]:
    return [
        # A client takes what its own server sends.
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ("grpc.keepalive_time_ms", round(keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(keepalive_s * 500)),
        # Without this a ping that nobody answers is waited for for a minute all the same.
        ("grpc.http2.ping_timeout_ms", round(keepalive_s * 500)),
        ("grpc.http2.max_pings_without_data", 0),
        # A server that comes back is found soon; how often to try is for the calls to say.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Each client has a connection of its own, which no other one's failures delay.
        ("grpc.use_local_subchannel_pool", 1),
    ]
