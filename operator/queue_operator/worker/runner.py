"""Running one job: from an assignment to how its handler ended."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from contextvars import copy_context
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol, TypeVar, cast

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.texts import text_of
from queue_operator.domain.traces import NO_TRACE, Trace, trace_id
from queue_operator.domain.validation import MAX_DURATION_S
from queue_operator.observing import JOB, TRACE_ID, JobMark
from queue_operator.worker.capture import RUNNING
from queue_operator.worker.context import JobContext
from queue_operator.worker.errors import INVALID_RESULT, Cancelled, PermanentError, Retry
from queue_operator.worker.handlers import HandlerSpec, Place
from queue_operator.worker.injection import Provider, all_of
from queue_operator.worker.middleware import Middleware, around
from queue_operator.worker.traces import trace_of
from queue_operator.worker.values import decode_result, encode_result

_T = TypeVar("_T")
_ENDING: Final = "_queue_operator_ending"
_BEGINNING: Final = threading.Lock()
"""One for all jobs: it is held for a moment only."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Fate(Enum):
    """Whether how the handler ends still matters to the server."""

    OPEN = auto()
    SETTLED = auto()
    """An outcome was given without waiting: timed out, or handed back."""
    TAKEN_OVER = auto()
    """Somebody else runs the job now."""
    ENDED = auto()
    """The queue ended the job. Only a completion may still count."""


@dataclass(eq=False, slots=True)
class Run:
    """A job in this process. Only the session's thread changes it, but for `begin`.

    `ticks` are heartbeats for which it waits to begin, or goes on after its fate is settled.
    `trace` is the span that its handler runs in.
    """

    job_id: str
    token: str
    spec: HandlerSpec
    context: JobContext
    max_result_bytes: int
    fate: Fate = Fate.OPEN
    cancel_requested: bool = False
    cancel_forced: bool = False
    receipted: bool = False
    timer: Timer | None = None
    ticks: int = 0
    begun: bool = False
    begun_s: float | None = None
    withdrawn: bool = False
    trace: Trace = NO_TRACE

    def begin(self) -> bool:
        """Where the handler is about to be called: False if it may no longer be."""
        with _BEGINNING:
            self.begun = not self.withdrawn
            if self.begun:
                self.begun_s = time.monotonic()
            return self.begun

    def withdraw(self) -> bool:
        """Keeps it from beginning, and says whether it had not: then nothing of it ever ran."""
        with _BEGINNING:
            self.withdrawn = not self.begun
            return self.withdrawn


@dataclass(frozen=True, slots=True)
class Completed:
    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Failed:
    """`retry_after_s` None leaves the wait to the job's backoff."""

    error: ErrorInfo
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """It raised Cancelled, or its task was cancelled."""


Ending = Completed | Failed | Stopped

_Returned = tuple[object, Completed]
"""What the handler returned, and what is stored of it."""


class ProcessRunner(Protocol):
    """Runs a handler in a child process, while the calling thread waits."""

    def call(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> Completed: ...


class Around(Protocol):
    """What stands around each run, and is told how it ended."""

    def around(self, run: Run) -> AbstractContextManager[Callable[[Ending], object]]: ...


class Runner:
    """From a job to how it ended: reads the payload, makes the dependencies, calls the handler
    through the middleware, and writes the result. An error of any of these is the handler's.

    `threads` runs plain functions for coroutines that await them, `processes` those that have
    a process of their own.
    """

    def __init__(
        self,
        chain: Sequence[Middleware],
        provider: Provider,
        threads: futures.Executor | None = None,
        processes: ProcessRunner | None = None,
        spans: Around | None = None,
    ) -> None:
        self._chain = chain
        self._provider = provider
        self._threads = threads
        self._processes = processes
        self._spans = spans

    def needs_no_loop(self, spec: HandlerSpec) -> bool:
        """Whether a thread alone can run it: nothing around the handler has to be awaited."""
        return (
            spec.place is not Place.LOOP
            and not self._chain
            and not spec.needs_loop
            and (spec.place is Place.PROCESS or self._provider.ready(spec.needs))
        )

    async def run(self, run: Run) -> Ending:
        """A cancellation of the task passes through; everything else becomes an Ending."""
        if not run.begin():
            return Stopped()
        _mark(run.context)
        if self._spans is None:
            return await self._run(run)
        with self._spans.around(run) as tell:
            tell(ending := await self._run(run))
        return ending

    async def _run(self, run: Run) -> Ending:
        try:
            return await self.call(run.spec, run.context, run.max_result_bytes)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return ending_of(error)

    def run_in_thread(self, run: Run) -> Ending:
        """For what `needs_no_loop`."""
        if not run.begin():
            return Stopped()
        _mark(run.context)
        if self._spans is None:
            return self._run_in_thread(run)
        with self._spans.around(run) as tell:
            tell(ending := self._run_in_thread(run))
        return ending

    def _run_in_thread(self, run: Run) -> Ending:
        try:
            return self._in_thread(run.spec, run.context, run.max_result_bytes)[1]
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return ending_of(error)

    async def call(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> Completed:
        """Raises what the handler or the middleware raises."""
        if not self._chain:
            return (await self._once(spec, context, max_bytes))[1]
        return _completed(spec, await self._through(spec, context, max_bytes), max_bytes)

    async def value(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> object:
        """As `call`, but gives what the handler returned, once it is known to be storable."""
        value = await self._through(spec, context, max_bytes)
        _completed(spec, value, max_bytes)
        return value

    def complete_here(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> Completed:
        """As `call`, for a plain function with nothing around it that has to be awaited."""
        return self._in_thread(spec, context, max_bytes)[1]

    def value_here(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> object:
        """As `value`, for a plain function with nothing around it that has to be awaited."""
        return self._in_thread(spec, context, max_bytes)[0]

    async def _through(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> object:
        """What comes out of the middleware, which may be another value than the handler's."""

        async def handler(ctx: JobContext) -> object:
            return (await self._once(spec, ctx, max_bytes))[0]

        return await around(handler, self._chain)(context)

    async def _once(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> _Returned:
        if spec.place is Place.LOOP and not spec.needs:
            value = await spec.function(*spec.arguments(context))
            return value, _completed(spec, value, max_bytes)
        if spec.place is Place.LOOP or spec.needs_loop:
            return await self._with_dependencies(spec, context, max_bytes)
        if spec.place is Place.THREAD:
            await self._provider.prepare(all_of(spec.needs))
        return await self._finish_in_thread(lambda: self._in_thread(spec, context, max_bytes))

    async def _with_dependencies(
        self, spec: HandlerSpec, context: JobContext, max_bytes: int
    ) -> _Returned:
        async with AsyncExitStack() as stack:
            try:
                needed = await self._provider.provide(spec.needs, context, stack)
                call = partial(spec.function, *spec.arguments(context), **needed)
                on_loop = spec.place is Place.LOOP
                value = await (call() if on_loop else self._finish_in_thread(call))
                if spec.may_await and inspect.isawaitable(value):
                    value = await value
                return value, _completed(spec, value, max_bytes)
            except BaseException as error:
                failed = error
                raise
        # A dependency that swallows the error must not turn it into a success.
        raise failed

    def _in_thread(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> _Returned:
        if spec.place is Place.PROCESS and self._processes is not None:
            completed = self._processes.call(spec, context, max_bytes)
            value = decode_result(completed.body, completed.content_type) if self._chain else None
            return value, completed
        with ExitStack() as stack:
            try:
                needed = self._provider.provide_here(spec.needs, context, stack)
                value = spec.function(*spec.arguments(context), **needed)
                _refuse_awaitable(value)
                return value, _completed(spec, value, max_bytes)
            except BaseException as error:
                failed = error
                raise
        raise failed

    async def _finish_in_thread(self, work: Callable[[], _T]) -> _T:
        """A thread cannot be stopped, so a cancellation waits for it, and then has nothing
        left to interrupt.
        """
        within = copy_context().run
        done = asyncio.get_running_loop().run_in_executor(self._threads, within, work)
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
        return done.result()


def _completed(spec: HandlerSpec, value: object, max_bytes: int) -> Completed:
    return Completed(*encode_result(value, max_bytes, spec.write_result))


def _mark(context: JobContext) -> None:
    """All that runs in this context of variables is about the job from now on."""
    RUNNING.set(context)
    JOB.set(JobMark(context.worker.namespace, context.job_id, context.attempt))
    if context.traceparent:
        # Where spans are recorded, the run has a trace of its own.
        TRACE_ID.set(trace_id(context.traceparent))


class HandlerFailed(Exception):
    """The handler raised something that can only be told, as its process is another one."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.error.message if isinstance(ending, Failed) else "stopped")
        with_ending(self, ending)


def with_ending(error: Exception, ending: Ending) -> Exception:
    """An exception that was raised in another process, where its meaning was found."""
    error.__dict__[_ENDING] = ending
    return error


def ending_of_task(task: "asyncio.Task[Ending]") -> Ending:
    """How the task of a handler ended, whatever came out of it: a job must not wait for ever
    because its handler raised what nobody expects.
    """
    if task.cancelled():
        return Stopped()
    error = task.exception()
    return task.result() if error is None else ending_of(error)


def ending_of(error: BaseException) -> Ending:
    """What an exception of a handler means to the queue. Never raises, whatever the exception is
    made of: it is asked for its texts here, and nowhere else.
    """
    try:
        return _meaning(error)
    except Exception as other:
        text = f"{type(error).__name__}, which cannot be read: {type(other).__name__}"
        return Failed(ErrorInfo(text, ErrorCategory.TEMPORARY, type(error).__name__))


def _meaning(error: BaseException) -> Ending:
    if (known := error.__dict__.get(_ENDING)) is not None:
        return cast(Ending, known)
    match error:
        case BaseExceptionGroup():
            return _meaning_of_group(error)
        case Cancelled():
            return Stopped()
        case Retry():
            code = text_of(getattr(error, "code", "RETRY"))
            return Failed(_info(error, ErrorCategory.TEMPORARY, code), _wait_s(error))
        case PermanentError():
            info = _info(
                error, ErrorCategory.PERMANENT, text_of(getattr(error, "code", "PERMANENT"))
            )
            context = getattr(error, "context", {}).items()
            told = {text_of(key): text_of(value) for key, value in context}
            return Failed(replace(info, context=told))
        case _:
            return Failed(_info(error, ErrorCategory.TEMPORARY, type(error).__name__))


def _meaning_of_group(group: "BaseExceptionGroup[BaseException]") -> Ending:
    """What its leaves mean. Where they disagree another attempt may help, so the first that is
    not permanent speaks for them; the longest wait that one asks for is kept.
    """
    endings = [ending_of(leaf) for leaf in _leaves(group)]
    failures = [ending for ending in endings if isinstance(ending, Failed)]
    if not failures:
        return Stopped()
    permanent = ErrorCategory.PERMANENT
    first = next((one for one in failures if one.error.category is not permanent), failures[0])
    waits = [one.retry_after_s for one in failures if one.retry_after_s is not None]
    told = replace(first.error, stack_trace=trace_of(group))
    return Failed(told, max(waits, default=None))


def _leaves(group: "BaseExceptionGroup[BaseException]") -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        elif not isinstance(one, asyncio.CancelledError):
            yield one


def _wait_s(error: Retry) -> float | None:
    after_s = getattr(error, "after_s", None)
    if isinstance(after_s, int | float) and 0 <= after_s <= MAX_DURATION_S:
        return float(after_s)
    return None


def _info(error: BaseException, category: ErrorCategory, code: str) -> ErrorInfo:
    message = text_of(error) or type(error).__name__
    return ErrorInfo(message=message, category=category, code=code, stack_trace=trace_of(error))


def _refuse_awaitable(value: object) -> None:
    if not inspect.isawaitable(value):
        return
    if inspect.iscoroutine(value):
        value.close()
    raise PermanentError(
        "the handler returned something to be awaited, and nobody awaits it: make it `async def`, "
        "or let the decorator around it use functools.wraps, which shows what is inside",
        code=INVALID_RESULT,
    )
