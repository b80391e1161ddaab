"""A stream of jobs from another process."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import grpc

from queue_operator.client.grpc.calls import CLOSED, Calls
from queue_operator.client.grpc.iterating import Steps, until_done
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.domain.job import Job
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1.worker_pb2 import HeldJob

if TYPE_CHECKING:
    from queue_operator.wire.v1.queue_pb2_grpc import QueueAsyncStub

logger = logging.getLogger(__name__)

STREAM_ID_KEY: Final = "stream-id"
_Call = grpc.aio.UnaryStreamCall[pb.StreamJobsRequest, pb.JobBatch]


class GrpcStream(Steps[list[Job]]):
    """An async iterator of batches of jobs, as they are assigned.

    It is registered with the server at the first step, or by `async with`. Ends when the
    server's queue closes; raises Unavailable when the connection is lost, and what had not
    come through then goes back to the queue when its lease ends. Close it (`async with`,
    `aclose`): jobs that were assigned and not taken go back at once. A step that is cancelled,
    or timed out, loses nothing.
    """


class Reading:
    """The call behind a stream; it outlives one that nobody holds any more, until it is closed."""

    def __init__(self, calls: Calls, request: pb.StreamJobsRequest, namespace: str) -> None:
        self._calls = calls
        self._request = request
        self._namespace = namespace
        self._resources = AsyncExitStack()
        self._opening: asyncio.Task[_Call] | None = None
        self._call: _Call | None = None
        self._stub: QueueAsyncStub | None = None
        self._stream_id = ""
        self._read: asyncio.Task[Sequence[pb.Job] | None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def next(self) -> list[Job]:
        """Raises StopAsyncIteration at the end."""
        read = await self._taken()
        try:
            jobs = read.result()
        except QueueError:
            await self._leave()
            raise
        if jobs is None:
            await self._leave()
            raise StopAsyncIteration
        return convert.jobs_from_wire(jobs, namespace=self._namespace)

    async def _taken(self) -> "asyncio.Task[Sequence[pb.Job] | None]":
        """A batch that is there, for one of the steps that wait for it."""
        await self.open()
        while not self._ended.is_set():
            if self._read is None:
                self._read = asyncio.create_task(self._next_batch())
            read = self._read
            await until_done(read, self._ended)
            if self._read is read and not self._ended.is_set():
                self._read = None
                return read
        raise StopAsyncIteration

    async def close(self) -> None:
        """What nobody took goes back to the queue."""
        if self._closing is None:
            self._ended.set()
            self._closing = asyncio.create_task(self._close())
        # Whoever waits may be cut off; what the stream gives back must not be.
        await asyncio.shield(self._closing)

    # Opening

    async def open(self) -> None:
        """Raises what the server has against the stream."""
        if self._call is not None or self._ended.is_set():
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._register())
        opening = self._opening
        await until_done(opening, self._ended)
        if self._ended.is_set():
            return
        try:
            self._call = opening.result()
        except QueueError:
            await self._leave()
            raise

    async def _register(self) -> _Call:
        if self._calls.line.closed:
            raise Unavailable(CLOSED)
        self._stub = stub = await self._resources.enter_async_context(self._calls.line.call())
        call = stub.StreamJobs(self._request, metadata=self._calls.metadata(self._namespace))
        self._resources.callback(call.cancel)
        try:
            async with asyncio.timeout(self._calls.timeout_s):
                self._stream_id = str(dict(await call.initial_metadata()).get(STREAM_ID_KEY, ""))
                if not self._stream_id:
                    # Refused: the end says why.
                    await call.read()
        except TimeoutError:
            raise Unavailable(
                f"the stream was not opened within {self._calls.timeout_s:g} s"
            ) from None
        except grpc.aio.AioRpcError as error:
            raise await self._calls.explained(self._calls.error_of(error)) from None
        return call

    # Reading

    async def _next_batch(self) -> Sequence[pb.Job] | None:
        """None at the end."""
        assert self._call is not None  # noqa: S101  (it was opened)
        try:
            batch = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._cut(error) from None
        except asyncio.CancelledError:
            if self._calls.line.closed:
                return None
            raise
        if not isinstance(batch, pb.JobBatch):
            return None
        return batch.jobs

    def _cut(self, error: grpc.aio.AioRpcError) -> QueueError:
        found = self._calls.error_of(error)
        return Unavailable(f"the stream was cut: {found}") if _is_loss(found) else found

    # Ending

    async def _leave(self) -> None:
        """There is nothing more to come."""
        self._ended.set()
        await self._resources.aclose()

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self._calls.timeout_s):
                if await self._was_opened():
                    await self._give_back()
        except (QueueError, OSError) as error:
            logger.warning("jobs nobody took go back when their lease ends: %s", error)
        finally:
            if self._read is not None:
                self._read.cancel()
                await asyncio.gather(self._read, return_exceptions=True)
            await self._resources.aclose()

    async def _was_opened(self) -> bool:
        if self._opening is not None and self._call is None:
            self._call = await self._opening
        return self._call is not None and not self._call.done()

    async def _give_back(self) -> None:
        """The server ends the stream after what is on its way, which is then given back."""
        unread: list[HeldJob] = []
        try:
            await self._end()
            while (jobs := await self._rest()) is not None:
                unread += _held(jobs)
        except QueueError as error:
            logger.warning("jobs on their way go back when their lease ends: %s", error)
            unread += _held(self._in_hand())
            if self._call is not None:
                # Or it would be given again what comes back.
                self._call.cancel()
        if unread:
            await self._calls.ask(
                "ReturnJobs",
                pb.ReturnJobsRequest(jobs=unread),
                pb.ReturnJobsResponse,
                namespace=self._namespace,
                repeatable=True,
            )

    async def _end(self) -> None:
        """Over the stream's own connection: another one may lead to another replica, which does
        not know it.
        """
        end = pb.EndStreamRequest(stream_id=self._stream_id)
        await self._calls.ask(
            "EndStream", end, pb.EndStreamResponse, namespace=self._namespace, stub=self._stub
        )

    def _in_hand(self) -> Sequence[pb.Job]:
        """What has come through and no step has taken."""
        read = self._read
        if read is None or not read.done() or read.cancelled() or read.exception():
            return ()
        return read.result() or ()

    async def _rest(self) -> Sequence[pb.Job] | None:
        read, self._read = self._read or asyncio.create_task(self._next_batch()), None
        return await read


def _held(jobs: Sequence[pb.Job]) -> list[HeldJob]:
    return [HeldJob(job_id=job.id, token=job.token) for job in jobs if job.token]


def _is_loss(error: QueueError) -> bool:
    return isinstance(error, Unavailable)
