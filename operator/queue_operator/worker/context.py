"""What a handler knows about its job, and how it hears that it should stop."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar, Unpack

from queue_operator.client.requests import Submission
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.tags import to_map
from queue_operator.domain.texts import text_of
from queue_operator.domain.validation import check_bytes, check_text
from queue_operator.domain.values import value
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.content import JSON
from queue_operator.worker.errors import Cancelled
from queue_operator.worker.link import JobLink, SendLimits, Unconnected
from queue_operator.worker.shipping import fields_of, line
from queue_operator.worker.spawning import ChildOptions, child_job

_T = TypeVar("_T")

logger = logging.getLogger(__name__)
job_logger = logging.getLogger("queue_operator.job")

MAX_PROGRESS_MESSAGE_BYTES = 1024

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CANCELLING: Final = threading.Lock()
"""One for all jobs: it is held for a moment only, and few jobs are ever cancelled."""


class Cancellation:
    """An event that threads and coroutines can both wait on. Set once, never cleared.

    Each job has one, and hardly any is waited on: what only a waiter needs is made by the first.
    """

    __slots__ = ("_event", "_is_set", "_waiters", "_watchers")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] | None = None
        self._watchers: list[Callable[[], object]] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with _CANCELLING:
            self._is_set = True
            event, waiters, self._waiters = self._event, self._waiters or (), None
            watchers, self._watchers = self._watchers or (), None
        if event is not None:
            event.set()
        for loop, waiting in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(waiting.set)
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Calls it once, on the thread that sets the event, or now if it is set already."""
        with _CANCELLING:
            late = self._is_set
            if not late:
                self._watchers = [*(self._watchers or ()), watcher]
        if late:
            watcher()

    def wait(self, timeout_s: float | None = None) -> bool:
        """For handlers that are plain functions: true when set, false after the timeout.

        Raises RuntimeError in a coroutine, whose loop it would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._is_set or self._wait_here(timeout_s)
        raise RuntimeError("in an async handler use: await ctx.cancelled.wait_async(timeout_s)")

    def _wait_here(self, timeout_s: float | None) -> bool:
        return self._made_event().wait(timeout_s)

    async def wait_async(self, timeout_s: float | None = None) -> bool:
        """For async handlers: true when set, false after the timeout."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with _CANCELLING:
            if self._is_set:
                return True
            self._waiters = [*(self._waiters or ()), waiter]
        try:
            async with asyncio.timeout(timeout_s):
                await waiter[1].wait()
        except TimeoutError:
            return self._is_set
        finally:
            self._forget(waiter)
        return True

    def _made_event(self) -> threading.Event:
        with _CANCELLING:
            if self._event is None:
                self._event = threading.Event()
                if self._is_set:
                    self._event.set()
            return self._event

    def _forget(self, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with _CANCELLING:
            self._waiters = [one for one in self._waiters or () if one is not waiter]


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The process that runs the handler; `session_id` is new with every start."""

    session_id: str
    name: str
    namespace: str
    host: str
    tags: frozenset[str] = frozenset()


@value(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The first argument of every handler.

    `attempt` counts from 1. `deadline` is when the execution timeout strikes, by this
    machine's clock, None without a timeout. Both are of the claim that started the handler:
    if the job is lost while the worker is cut off and claimed by it again, the handler goes
    on, and the timeout then strikes later. `payload` is what was submitted, byte for
    byte; `parent_payload` what the parent of a chained job gave, which `parent_result()` reads.
    `cancelled` can be waited on: `wait(s)` in a function, `await wait_async(s)` in
    a coroutine. `state` is what the worker's lifespan gave, None without one. `traceparent` and
    `tracestate` name the span of the submission, where it had one.
    """

    job_id: str
    type: str
    attempt: int
    created_at: datetime
    correlation_id: str = ""
    traceparent: str = ""
    tracestate: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: str = ""
    deadline: datetime | None = None
    payload: bytes = field(default=b"", repr=False)
    content_type: str = "application/json"
    parent_payload: bytes | None = field(default=None, repr=False)
    parent_content_type: str = ""
    worker: WorkerIdentity
    cancelled: Cancellation = field(default_factory=Cancellation, repr=False)
    state: Any = field(default=None, repr=False)
    _checkpoint: bytes | None = field(default=None, repr=False)
    _link: JobLink = field(default_factory=Unconnected, repr=False)
    _limits: SendLimits = field(default=SendLimits(), repr=False)

    def parent_result(self) -> Any:
        """What the last job gave that this one was chained to: its JSON value, or bytes. None
        for a job that is not chained, and where the parent gave nothing.
        """
        if self.parent_payload is None or self.parent_content_type != JSON:
            return self.parent_payload
        return json.loads(self.parent_payload)

    def is_cancelled(self) -> bool:
        """True once somebody asked to cancel this job, or it is no longer ours."""
        return self.cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled once `is_cancelled()` is true."""
        if self.is_cancelled():
            raise Cancelled

    def report_progress(self, percent: int, message: str = "") -> None:
        """Shown in the job's status. Cheap: only the latest report is sent.

        A message over 1 KiB is cut. Raises Cancelled once `is_cancelled()` is true, and
        InvalidArgument unless `percent` is a whole number from 0 to 100.
        """
        if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
            raise InvalidArgument("percent", f"must be a whole number 0 to 100, not {percent!r}")
        if not isinstance(message, str):
            raise InvalidArgument("message", f"must be a string, not {type(message).__name__}")
        self.raise_if_cancelled()
        self._link.report(int(percent), str.__str__(message))

    def checkpoint(self, state: bytes | bytearray | memoryview) -> Any:
        """Stores what the next attempt shall start from, in place of what was stored before.

        In a function it returns once the state is stored, in a coroutine it is awaited:
        `await ctx.checkpoint(state)`. The next attempt finds the state in `last_checkpoint()`,
        however this one ends; with the end of the job it is dropped.

        Raises Cancelled once `is_cancelled()` is true, StaleLease when another worker has the
        job, PayloadTooLarge for more than the server takes (1 MiB unless it says otherwise),
        which is not sent.
        """
        if not isinstance(state, bytes | bytearray | memoryview):
            raise InvalidArgument("checkpoint", f"must be bytes, not {type(state).__name__}")
        check_bytes("checkpoint", data := bytes(state), self._limits.checkpoint_bytes)
        self.raise_if_cancelled()
        return self._answer(self._link.checkpoint(data))

    def last_checkpoint(self) -> bytes | None:
        """The newest state that earlier attempts stored, None if they stored none."""
        return self._checkpoint

    def spawn(
        self,
        type: str | Submission,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Any:
        """Submits a child of this job and gives its id: in a function once it is stored, in a
        coroutine when awaited, `await ctx.spawn("resize", Image(...))`.

        `payload` is a model (written so that the same model reads it), a JSON value, or bytes.
        `options` are those of a submission (`tags`, `priority`, `delay`, `depends_on`, …); the
        child inherits this job's correlation id unless it is given one. In place of all that a
        whole `Submission` can be given.

        A job that runs again gets the children it had: the first spawn of the new attempt is
        the first one of those before, and so on. Where the order may differ between attempts,
        give each child a `key` of its own.

        Raises Cancelled once `is_cancelled()` is true, StaleLease when another worker has the
        job, InvalidArgument naming what is wrong with the child.
        """
        if key is not None:
            check_text("key", key, sys.maxsize)
        child = child_job(type, payload, options, self._limits.payload_bytes)
        self.raise_if_cancelled()
        return self._answer(self._link.spawn(key, child))

    def _answer(self, future: "Future[_T]") -> Any:
        """The answer itself in a function, and something to await in a coroutine."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            answer = future.result()
            self.raise_if_cancelled()
            return answer
        return self._awaited(future)

    async def _awaited(self, future: "Future[_T]") -> _T:
        answer = await asyncio.wrap_future(future)
        self.raise_if_cancelled()
        return answer

    def log(
        self,
        level: str | int,
        message: object,
        fields: Mapping[str, object] | None = None,
        /,
        **more: object,
    ) -> None:
        """One structured line that carries the job's id, type and attempt: in the worker's own
        log, and shipped to the server, where the newest lines of each attempt are kept.

        Fields are given by name or as a mapping, and may have any name. What is no JSON is
        written as its text. `level` is debug, info, warning, error, critical, or a number of
        `logging`; a line of another level is one of info.

        Never waits and never raises: a line must not fail a job.
        """
        try:
            self._say(level, text_of(message), fields_of(fields, more))
        except Exception as error:
            # Of whoever configured logging: a filter, a factory of records.
            with suppress(Exception):
                logger.warning("a line of job %s is not in this log: %s", self.job_id, error)

    def _say(self, level: str | int, message: str, fields: dict[str, object]) -> None:
        number = _level(level)
        if number is None:
            number = logging.INFO
            fields["unknown_level"] = text_of(level)
        about = {"job_id": self.job_id, "job_type": self.type, "attempt": self.attempt}
        if self.correlation_id:
            about["correlation_id"] = self.correlation_id
        self._link.log(line(logging.getLevelName(number), message, fields))
        job_logger.log(number, message, extra={"fields": fields | about})


def _level(level: object) -> int | None:
    """None for what is no level."""
    if isinstance(level, str):
        return logging.getLevelNamesMapping().get(level.upper())
    return level if isinstance(level, int) and not isinstance(level, bool) else None


@lru_cache(maxsize=1024)
def _tag_map(tags: tuple[str, ...]) -> dict[str, str]:
    """Those of a kind of job are the same for each. Copy it: it is shared."""
    return to_map(tags)


def context_of(
    assignment: wire.Assignment,
    worker: WorkerIdentity,
    link: JobLink,
    limits: SendLimits,
    now: datetime,
) -> JobContext:
    """The context of a job that has just arrived: its deadline counts from now."""
    deadline = None
    if assignment.HasField("timeout"):
        left: timedelta = assignment.timeout.ToTimedelta()
        deadline = now + left
    at = assignment.created_at
    return JobContext(
        job_id=assignment.job_id,
        type=assignment.type,
        attempt=assignment.attempt,
        created_at=_EPOCH + timedelta(seconds=at.seconds, microseconds=at.nanos // 1000),
        correlation_id=assignment.correlation_id,
        traceparent=assignment.traceparent,
        tracestate=assignment.tracestate,
        tags=_tag_map(tuple(assignment.tags)).copy(),
        priority=assignment.priority,
        deadline=deadline,
        payload=assignment.payload,
        content_type=assignment.content_type,
        parent_payload=assignment.parent_result if assignment.HasField("parent_result") else None,
        parent_content_type=assignment.parent_content_type,
        worker=worker,
        _checkpoint=assignment.checkpoint if assignment.HasField("checkpoint") else None,
        _link=link,
        _limits=limits,
    )
