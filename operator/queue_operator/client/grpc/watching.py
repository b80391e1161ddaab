"""What happens to jobs, told by another process for as long as somebody listens."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import grpc

from queue_operator.client.events import NOW_ON, RETRY_S, SILENCE_S, JobEvent
from queue_operator.client.grpc.calls import CLOSED, Calls
from queue_operator.client.grpc.iterating import Steps, until_done
from queue_operator.domain.errors import (
    PositionExpired,
    QueueError,
    QuotaExceeded,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.domain.views import Phase, phase
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import NO_GRPC
from queue_operator.wire.v1 import queue_pb2 as pb

logger = logging.getLogger(__name__)

_Call = grpc.aio.UnaryStreamCall[pb.WatchJobsRequest, pb.JobEventMessage]
_END: Final = "end"


class GrpcEvents(Steps[JobEvent]):
    """An async iterator of events, which ends when nothing more can come. It goes on by itself
    after the last event that came, whatever breaks; a step that is cancelled, or timed out, loses
    nothing. Close it (`async with`, `aclose`) where it does not end by itself.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is watched: one job, on and on if `goes_on`, or all of a filter; `get` looks at that job
    every `poll_s` seconds where the server has no streams. `outage_s` is how long it may be away.
    """

    namespace: str
    request: pb.WatchJobsRequest
    get: Callable[[], Awaitable[Job]] | None = None
    poll_s: float = 2.0
    outage_s: float = 60.0
    on_gap: Callable[[str], None] | None = None


class _NoStream(Exception):
    """The server tells no events."""


class Listening:
    """The calls behind `GrpcEvents`, one after the other."""

    def __init__(self, calls: Calls, watched: Watched) -> None:
        self._calls, self._watched = calls, watched
        self._position = watched.request.after
        self._resources = AsyncExitStack()
        self._call: _Call | None = None
        self._spoke = False
        self._listens = True
        self._failures, self._heard_at = 0, 0.0
        self._last: JobEvent | None = None
        self._step: asyncio.Task[JobEvent | None] | None = None
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """The first step does."""

    async def next(self) -> JobEvent:
        while not self._ended.is_set():
            if self._step is None:
                self._heard_at = asyncio.get_running_loop().time()
                self._step = asyncio.create_task(self._next())
            step = self._step
            await until_done(step, self._ended)
            if self._step is not step or self._ended.is_set():
                continue  # Somebody else has taken it, or it was closed.
            self._step = None
            try:
                event = step.result()
            except BaseException:
                await self.close()
                raise
            if event is not None:
                return event
            await self.close()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Hangs up."""
        self._ended.set()
        step, self._step = self._step, None
        if step is not None:
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        await self._hang_up()

    async def _next(self) -> JobEvent | None:
        """None where nothing more comes. Raises what the server has against it."""
        while self._listens:
            try:
                message = await self._heard()
            except _NoStream:
                if self._watched.get is None:
                    raise QueueError("the store of this server cannot be followed") from None
                self._listens = False
                break
            if message.ending == _END:
                return None
            if message.ending:
                # It was too slow for the server, and goes on where it is.
                await self._hang_up()
                await self._pause(None)
                continue
            self._position = message.position or self._position
            if message.job_id:
                return _event(message)
        return await self._looked()

    async def _heard(self) -> pb.JobEventMessage:
        while True:
            try:
                call = self._call or await self._open()
                bound_s = SILENCE_S if self._spoke else self._calls.timeout_s
                async with asyncio.timeout(bound_s):
                    message = await call.read()
            except TimeoutError:
                broken: QueueError = Unavailable("the server has said nothing for too long")
            except grpc.aio.AioRpcError as error:
                broken = self._calls.error_of(error)
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise _NoStream from None
            except Unavailable as error:
                broken = error
            else:
                if isinstance(message, pb.JobEventMessage):
                    self._spoke, self._failures = True, 0
                    self._heard_at = asyncio.get_running_loop().time()
                    return message
                broken = Unavailable("the server has ended the stream")
            await self._again(broken)

    async def _open(self) -> _Call:
        if self._calls.line.closed:
            raise Unavailable(CLOSED)
        stub = await self._resources.enter_async_context(self._calls.line.call())
        request = pb.WatchJobsRequest()
        request.CopyFrom(self._watched.request)
        request.after = self._position
        metadata = self._calls.metadata(self._watched.namespace)
        self._call = call = stub.WatchJobs(request, metadata=metadata)
        self._resources.callback(call.cancel)
        return call

    async def _again(self, broken: QueueError) -> None:
        """Before the stream is opened once more. Raises what no other try would change; of one
        that was open already the next try tells, whose credentials are new.
        """
        spoke = self._spoke
        await self._hang_up()
        if isinstance(broken, PositionExpired) and self._position:
            self._position = ""
            (self._watched.on_gap or _warn)(f"{broken}; {NOW_ON}")
            return
        is_known = isinstance(broken, Unavailable | QuotaExceeded)
        if self._calls.line.closed or NO_GRPC in str(broken) or not (is_known or spoke):
            raise await self._calls.explained(broken) from None
        await self._pause(broken)

    async def _pause(self, broken: QueueError | None) -> None:
        self._failures += 1
        silent_s = asyncio.get_running_loop().time() - self._heard_at
        if broken is not None and silent_s >= self._watched.outage_s:
            raise await self._calls.explained(broken) from None
        wanted_s = getattr(broken, "retry_after_s", None) or 0.0
        await self._calls.pause(self._failures, RETRY_S if self._failures == 1 else 0.0, wanted_s)

    async def _hang_up(self) -> None:
        self._call, self._spoke = None, False
        await self._resources.aclose()

    async def _looked(self) -> JobEvent | None:
        """The job, once it is another than at the last look."""
        get = self._watched.get
        assert get is not None  # noqa: S101  (a filter is never looked for)
        has_ended = self._last is not None and self._last.is_finished
        if has_ended and not self._watched.request.goes_on:
            return None
        while True:
            if self._last is not None:
                await self._calls.pause(0, 0.0, self._watched.poll_s)
            try:
                seen = _seen(await get())
            except Unavailable as error:
                silent_s = asyncio.get_running_loop().time() - self._heard_at
                if silent_s >= self._watched.outage_s:
                    raise error from None
                continue
            self._heard_at = asyncio.get_running_loop().time()
            last, self._last = self._last, seen
            if last is None or _shown(last) != _shown(seen):
                return seen


def _event(message: pb.JobEventMessage) -> JobEvent:
    return JobEvent(
        job_id=message.job_id,
        namespace=message.namespace,
        type=message.type,
        status=Phase(message.status),
        state=message.state or None,
        event=message.event,
        attempt=message.attempt,
        at=convert.time_from_wire("at", message.at),
        position=message.position,
    )


def _seen(job: Job) -> JobEvent:
    return JobEvent(
        job_id=job.id,
        namespace=job.namespace,
        type=job.type,
        status=phase(job, datetime.now(UTC)),
        state=job.state,
        attempt=job.attempt,
        at=job.updated_at,
    )


def _shown(event: JobEvent) -> tuple[object, ...]:
    return event.status, event.attempt


def _warn(text: str) -> None:
    logger.warning("%s", text)
