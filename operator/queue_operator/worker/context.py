"""What a handler knows about its job, and how it hears that it should stop."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.tags import to_map
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.errors import Cancelled

job_logger = logging.getLogger("queue_operator.job")

MAX_PROGRESS_MESSAGE_BYTES = 1024


class Cancellation:
    """An event that threads and coroutines can both wait on. Set once, never cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        with self._lock:
            self._event.set()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def wait(self, timeout_s: float | None = None) -> bool:
        """For handlers that are plain functions: true when set, false after the timeout.

        Raises RuntimeError in a coroutine, whose loop it would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._event.wait(timeout_s)
        raise RuntimeError("in an async handler use: await ctx.cancelled.wait_async(timeout_s)")

    async def wait_async(self, timeout_s: float | None = None) -> bool:
        """For async handlers: true when set, false after the timeout."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._event.is_set():
                return True
            self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter[1].wait()
        except TimeoutError:
            return self._event.is_set()
        finally:
            self._forget(waiter)
        return True

    def _forget(self, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The process that runs the handler; `session_id` is new with every start."""

    session_id: str
    name: str
    namespace: str
    host: str
    tags: frozenset[str] = frozenset()


def _ignore_progress(_percent: int, _message: str) -> None:
    """Progress of a job that no server watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The first argument of every handler.

    `attempt` counts from 1. `deadline` is when the execution timeout strikes, by this
    machine's clock, None without a timeout. Both are of the claim that started the handler:
    if the job is lost while the worker is cut off and claimed by it again, the handler goes
    on, and the timeout then strikes later. `payload` is what was submitted, byte for
    byte. `cancelled` can be waited on: `wait(s)` in a function, `await wait_async(s)` in
    a coroutine.
    """

    job_id: str
    type: str
    attempt: int
    created_at: datetime
    correlation_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: str = ""
    deadline: datetime | None = None
    payload: bytes = field(default=b"", repr=False)
    content_type: str = "application/json"
    worker: WorkerIdentity
    cancelled: Cancellation = field(default_factory=Cancellation, repr=False)
    _report: Callable[[int, str], None] = field(default=_ignore_progress, repr=False)

    def is_cancelled(self) -> bool:
        """True once somebody asked to cancel this job, or it is no longer ours."""
        return self.cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled once `is_cancelled()` is true."""
        if self.is_cancelled():
            raise Cancelled

    def report_progress(self, percent: int, message: str = "") -> None:
        """Shown in the job's status. Cheap: only the latest report is sent.

        A message over 1 KiB is cut. Raises InvalidArgument unless `percent` is a whole
        number from 0 to 100.
        """
        if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
            raise InvalidArgument("percent", f"must be a whole number 0 to 100, not {percent!r}")
        if not isinstance(message, str):
            raise InvalidArgument("message", f"must be a string, not {type(message).__name__}")
        self._report(percent, message)

    def log(self, level: str | int, message: str, **fields: object) -> None:
        """One structured line that carries the job's id, type and attempt.

        `level` is debug, info, warning, error, critical, or a number of `logging`.
        Raises InvalidArgument for any other level.
        """
        about = {"job_id": self.job_id, "job_type": self.type, "attempt": self.attempt}
        if self.correlation_id:
            about["correlation_id"] = self.correlation_id
        job_logger.log(_level(level), message, extra={"fields": fields | about})


def _level(level: str | int) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidArgument(
            "level", f"{level!r} is none of debug, info, warning, error, critical"
        )
    return number


def context_of(
    assignment: wire.Assignment,
    worker: WorkerIdentity,
    report: Callable[[int, str], None],
) -> JobContext:
    """The context of a job that has just arrived: its deadline counts from now."""
    deadline = None
    if assignment.HasField("timeout"):
        left: timedelta = assignment.timeout.ToTimedelta()
        deadline = datetime.now(UTC) + left
    return JobContext(
        job_id=assignment.job_id,
        type=assignment.type,
        attempt=assignment.attempt,
        created_at=assignment.created_at.ToDatetime(tzinfo=UTC),
        correlation_id=assignment.correlation_id,
        tags=to_map(assignment.tags),
        priority=assignment.priority,
        deadline=deadline,
        payload=assignment.payload,
        content_type=assignment.content_type,
        worker=worker,
        _report=report,
    )
