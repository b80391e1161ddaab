"""Single submissions share calls: while some are under way, the next ones gather."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from queue_operator.client.grpc.calls import CLOSED, Calls
from queue_operator.domain.errors import (
    DuplicateJob,
    PayloadTooLarge,
    QueueError,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import error_from_wire, error_to_wire
from queue_operator.wire.v1 import queue_pb2 as pb

IsStored = Callable[[Job], Awaitable[bool]]

_CALLS_AT_ONCE: Final = 2
"""One may be waiting for the disk while the next is being read."""
_JOBS: Final = 256
_BYTES: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class _Waiting:
    job: Job
    message: pb.Job
    answer: "asyncio.Future[str]"


class Submissions:
    """Sends each job at once while fewer than two calls are under way, else with the next call.
    A call has jobs of one namespace, so that a caller's right to another concerns nobody else.

    `is_stored` says whether the queue has just this job.
    """

    def __init__(self, calls: Calls, is_stored: IsStored) -> None:
        self._calls = calls
        self._is_stored = is_stored
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def store(self, job: Job) -> str:
        """The job's id. Raises what `EnqueueJob` does."""
        # Calls that were under way at a fork would never come back.
        self._calls.line.birthplace.check()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        one = _Waiting(job, convert.job_to_wire(job), answer)
        self._waiting.setdefault(job.namespace, deque()).append(one)
        self._send()
        try:
            async with asyncio.timeout(self._calls.timeout_s):
                return await answer
        except DuplicateJob as error:
            # The server names no ids that are too long for it to repeat.
            raise DuplicateJob((job.id,), error.indexes) from None
        except TimeoutError:
            raise Unavailable(f"there was no answer within {self._calls.timeout_s:g} s") from None

    async def close(self) -> None:
        """Waits for the calls under way, which end with the connection."""
        for waiting in self._waiting.values():
            for one in waiting:
                _fail(one, Unavailable(CLOSED))
        self._waiting.clear()
        if self._sending:
            await asyncio.wait(self._sending)

    def _send(self) -> None:
        while self._waiting and len(self._sending) < _CALLS_AT_ONCE:
            if group := self._take():
                task = asyncio.create_task(self._submit(group))
                self._sending.add(task)
                task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        self._send()

    def _take(self) -> list[_Waiting]:
        """The next ones of a namespace, without those whose callers have gone. Namespaces take
        turns.
        """
        namespace = next(iter(self._waiting))
        waiting = self._waiting.pop(namespace)
        group: list[_Waiting] = []
        room = _BYTES
        while waiting and len(group) < _JOBS:
            size = waiting[0].message.ByteSize()
            if group and size > room:
                break
            one = waiting.popleft()
            if not one.answer.done():
                group.append(one)
                room -= size
        if waiting:
            self._waiting[namespace] = waiting
        return group

    async def _submit(self, group: Sequence[_Waiting]) -> None:
        try:
            await self._call(group)
        except PayloadTooLarge as error:
            if len(group) == 1:
                _fail(group[0], error)
                return
            # Together they are more than this server takes.
            middle = len(group) // 2
            await self._submit(group[:middle])
            await self._submit(group[middle:])
        except Exception as error:
            for one in group:
                _fail(one, error)
        finally:
            # Nobody waits for ever, whatever happened.
            for one in group:
                one.answer.cancel()

    async def _call(self, group: Sequence[_Waiting]) -> None:
        if len(group) == 1:
            _answer(group[0], await self._alone(group[0]))
        else:
            await self._together(group)

    async def _alone(self, one: _Waiting) -> str:
        async def done_before(error: QueueError) -> pb.EnqueueJobResponse | None:
            known = isinstance(error, DuplicateJob) and await self._is_stored(one.job)
            return pb.EnqueueJobResponse(job_id=one.job.id) if known else None

        answer = await self._calls.ask(
            "EnqueueJob",
            pb.EnqueueJobRequest(job=one.message),
            pb.EnqueueJobResponse,
            repeatable=True,
            done_before=done_before,
        )
        return answer.job_id

    async def _together(self, group: Sequence[_Waiting]) -> None:
        async def mend(answer: pb.EnqueueEachResponse) -> None:
            for one, enqueued in zip(group, answer.enqueued, strict=True):
                error = error_from_wire(enqueued.error)
                if isinstance(error, DuplicateJob) and await self._is_stored(one.job):
                    enqueued.ClearField("error")

        answer = await self._calls.ask(
            "EnqueueEach",
            pb.EnqueueEachRequest(jobs=[one.message for one in group]),
            pb.EnqueueEachResponse,
            repeatable=True,
            mend=mend,
        )
        for one, enqueued in zip(group, answer.enqueued, strict=True):
            if enqueued.HasField("error"):
                _fail(one, error_from_wire(enqueued.error))
            else:
                _answer(one, enqueued.job_id)


def _answer(one: _Waiting, job_id: str) -> None:
    if not one.answer.done():
        one.answer.set_result(job_id)


def _fail(one: _Waiting, error: Exception) -> None:
    if not one.answer.done():
        if isinstance(error, QueueError):
            # One of its own, or each caller's stack would be added to the others'.
            error = error_from_wire(error_to_wire(error))
        one.answer.set_exception(error)
