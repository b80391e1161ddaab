"""StreamJobs for callers in this process: an iterator that nothing is lost with."""

import asyncio
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.states import JobState
from queue_operator.queue.stream import JobStream


class LibraryStream:
    """A `queue.protocol.JobBatches`. It asks for jobs from its first step, or from `async with`."""

    def __init__(
        self, stream: JobStream, register: Callable[[JobStream], None], patience_s: float
    ) -> None:
        self._stream = stream
        self._register = register
        self._patience_s = patience_s
        self._begun = False

    def _begin(self) -> None:
        if not self._begun and self._stream.end_reason is None:
            self._register(self._stream)
            self._begun = True
            # One that a loop has left and nobody closes would hold on to its jobs for ever.
            loop = asyncio.get_running_loop()
            weakref.finalize(self, _abandon, self._stream, loop).atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Job]:
        self._begin()
        push = await self._stream.next()
        if push is None:
            raise StopAsyncIteration
        # Nothing is waited for from here on, so a step is cancelled before it takes a batch or
        # not at all.
        self._stream.delivered(push)
        return [_streamed(job) for job in push.assignments]

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """While the store is away this takes a lease TTL: then the jobs go back by themselves."""
        closing = asyncio.ensure_future(self._stream.close())
        await asyncio.wait([closing], timeout=self._patience_s)
        if closing.done():
            closing.result()


def _abandon(stream: JobStream, loop: asyncio.AbstractEventLoop) -> None:
    if stream.end_reason is None and not loop.is_closed():
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(stream.close()))


def _streamed(job: Assignment) -> Job:
    return Job(
        id=job.job_id,
        type=job.type,
        payload=job.payload,
        content_type=job.content_type,
        namespace=job.namespace,
        tags=job.tags,
        priority=job.priority,
        created_at=job.created_at,
        timeout_s=job.timeout_s,
        correlation_id=job.correlation_id,
        state=JobState.RUNNING,
        eligible_at=job.eligible_at,
        started_at=job.started_at,
        retry_count=job.retry_count,
        last_retry_at=job.last_retry_at,
        attempt=job.attempt,
        assignee_id=job.assignee_id,
        assigned_at=job.assigned_at or datetime.now(UTC),
        token=job.token,
        traceparent=job.traceparent,
        tracestate=job.tracestate,
    )
