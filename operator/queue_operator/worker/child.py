"""The inside of a handler's own process: runs one job at a time while the worker lives."""

import atexit
import copyreg
import ctypes
import importlib
import itertools
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Final

from queue_operator.domain.errors import QueueError
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.context import Cancellation, JobContext
from queue_operator.worker.errors import PermanentError
from queue_operator.worker.handlers import HandlerSpec, build_spec
from queue_operator.worker.injection import Provider
from queue_operator.worker.runner import Completed, Ending, Runner, ending_of
from queue_operator.worker.shipping import Line

PARENT_GONE: Final = 1
_SET_PARENT_DEATH_SIGNAL: Final = 1


@dataclass(frozen=True, slots=True)
class Job:
    """What the worker sends: which function, and the context's plain members."""

    type: str
    module: str
    name: str
    context: dict[str, Any]
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """The worker's flag for the job that runs."""


@dataclass(frozen=True, slots=True)
class Stop:
    """There will be no more jobs."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of the context, to be made in the worker."""

    number: int
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the call gave or raised, packed."""

    number: int
    value: Any = None
    error: bytes = b""


@dataclass(frozen=True, slots=True)
class Ended:
    """`error` is what the handler raised, packed."""

    ending: Ending
    error: bytes = b""


def _child_job(data: bytes) -> wire.ChildJob:
    return wire.ChildJob.FromString(data)


# Messages cannot be pickled by themselves.
copyreg.pickle(wire.ChildJob, lambda job: (_child_job, (job.SerializeToString(),)))


def packed(error: BaseException) -> bytes:
    """The exception without its frames; nothing where it cannot be pickled."""
    try:
        return pickle.dumps((type(error), error.args, error.__dict__))
    except Exception:
        return b""


def unpacked(data: bytes) -> Exception | None:
    """None for nothing, and for what this process cannot make again."""
    if not data:
        return None
    try:
        kind, arguments, members = pickle.loads(data)  # noqa: S301  (between our own processes)
        # Not called: it may make its text of other arguments than it keeps.
        error = kind.__new__(kind, *arguments)
        error.__dict__.update(members)
    except Exception:
        logging.getLogger(__name__).debug("an exception of another process is unknown here")
        return None
    return error if isinstance(error, Exception) else None


class Interrupted(BaseException):
    """SIGTERM: the handler's `finally` blocks run, for as long as the worker waits."""


def serve(connection: "Connection[Any, Any]", log_level: int) -> None:
    """The whole life of the process."""
    _die_with_the_worker()
    # Ctrl-C reaches every process of a terminal; the worker decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    # Handlers may have processes of their own.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    child = Child(connection)
    logging.basicConfig(level=log_level, handlers=[_Forward(child.send)], force=True)
    threading.Thread(target=child.read, name="pipe", daemon=True).start()
    try:
        child.run()
    except Interrupted:
        _leave_at_once()


def _leave_at_once() -> None:
    """The worker waits: of what the interpreter does at its end only what may be missed."""
    with suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted


def _die_with_the_worker() -> None:
    """Where the kernel can, even while a library computes without letting Python run."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(PARENT_GONE)


class Child:
    """The main thread runs jobs, another reads what the worker says meanwhile."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._work: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._provider = Provider()
        self._runner = Runner((), self._provider)
        self._cancelled = Cancellation()
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()

    def read(self) -> None:
        """Until the worker is gone, and then this process is too."""
        try:
            while True:
                match self._connection.recv():
                    case bytes() as job:
                        self._cancelled = Cancellation()
                        self._work.put(job)
                    case Cancel():
                        self._cancelled.set()
                    case Answer() as answer:
                        self._answered(answer)
                    case Stop():
                        self._work.put(None)
        except (EOFError, OSError):
            os._exit(PARENT_GONE)

    def _answered(self, answer: Answer) -> None:
        future = self._asked.pop(answer.number)
        if answer.error:
            future.set_exception(unpacked(answer.error) or QueueError("refused"))
        else:
            future.set_result(answer.value)

    def send(self, message: Ask | Ended | logging.LogRecord) -> None:
        with self._sending:
            self._connection.send(message)

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._numbers)
        self._asked[number] = future
        self.send(Ask(number, method, arguments))
        return future

    def run(self) -> None:
        while (job := self._work.get()) is not None:
            # The module of the handler is imported here, in the main thread.
            self.send(self._run(pickle.loads(job)))  # noqa: S301  (the worker's own)
        self._provider.close_here()

    def _run(self, job: Job) -> Ended:
        try:
            return Ended(self._complete(job))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return Ended(ending_of(error), packed(error))

    def _complete(self, job: Job) -> Completed:
        spec = _spec(job.type, job.module, job.name)
        context = JobContext(**job.context, cancelled=self._cancelled, _link=PipeLink(self.ask))
        return self._runner.complete_here(spec, context, job.max_bytes)


@cache
def _spec(type_: str, module: str, name: str) -> HandlerSpec:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PermanentError(
            f"the handler {module}.{name} cannot be found in a process of its own: {error}",
            code="HANDLER_NOT_FOUND",
        ) from error
    return build_spec(type_, found, timeout=None, max_attempts=None, concurrency=None)


@dataclass(frozen=True, slots=True)
class PipeLink:
    """The `JobLink` of a context in a child process: the worker's is called for it."""

    ask: Callable[..., Future[Any]]

    def report(self, percent: int, message: str) -> None:
        self.ask("report", percent, message)

    def checkpoint(self, data: bytes) -> Future[None]:
        return self.ask("checkpoint", data)

    def spawn(self, key: str | None, job: wire.ChildJob) -> Future[str]:
        return self.ask("spawn", key, job)

    def log(self, said: Line) -> None:
        self.ask("log", said)


class _Forward(logging.Handler):
    """Log records go to the worker, which writes them among its own."""

    def __init__(self, send: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        if fields := getattr(record, "fields", None):
            record.fields = {name: _plain(value) for name, value in fields.items()}
        try:
            self._send(record)
        except Exception:
            self.handleError(record)


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | None) else str(value)
