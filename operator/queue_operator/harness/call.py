"""A session's stream within one process, in place of gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from google.protobuf.message import Message

from queue_operator.wire.v1 import worker_pb2 as pb

_Read = TypeVar("_Read", bound=Message)
_Written = TypeVar("_Written", bound=Message)


class End(Generic[_Read, _Written]):
    """One side. What is written is copied, as a network would."""

    def __init__(
        self, incoming: "asyncio.Queue[_Read | None]", outgoing: "asyncio.Queue[_Written | None]"
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def read(self) -> _Read | None:
        return await self._incoming.get()

    async def write(self, message: _Written) -> None:
        copy = type(message)()
        copy.CopyFrom(message)
        self._outgoing.put_nowait(copy)

    async def done_writing(self) -> None:
        self._outgoing.put_nowait(None)


ServerEnd = End[pb.WorkerMessage, pb.ServerMessage]
WorkerEnd = End[pb.ServerMessage, pb.WorkerMessage]


@contextlib.asynccontextmanager
async def connected(serve: Callable[[ServerEnd], Awaitable[None]]) -> AsyncIterator[WorkerEnd]:
    """A stream that `serve` answers. If that fails the worker reads its end, as of a cut."""
    to_server: asyncio.Queue[pb.WorkerMessage | None] = asyncio.Queue()
    to_worker: asyncio.Queue[pb.ServerMessage | None] = asyncio.Queue()
    serving = asyncio.ensure_future(serve(End(to_server, to_worker)))
    serving.add_done_callback(lambda _: to_worker.put_nowait(None))
    try:
        yield End(to_worker, to_server)
        await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
