"""The inside of a handler's own process: runs one job at a time while the worker lives."""

import atexit
import copyreg
import importlib
import itertools
import json
import logging
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from multiprocessing import spawn
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Final

from queue_operator.domain.errors import QueueError
from queue_operator.domain.traces import NO_TRACE, Trace
from queue_operator.tracing.within import within
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import supervisor
from queue_operator.worker.context import Cancellation, JobContext
from queue_operator.worker.errors import PermanentError
from queue_operator.worker.forwarding import Forward, Said
from queue_operator.worker.handlers import HandlerSpec, build_spec
from queue_operator.worker.injection import Provider
from queue_operator.worker.runner import Completed, Ending, Runner, ending_of
from queue_operator.worker.shipping import Line

UNGUARDED: Final = 86
"""The exit status of a process in which the worker's own script began to run a worker."""
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from queue_operator.worker import child; child.main(int(sys.argv[2]))"
)
_importing: Final = threading.Event()


def command(preparation: Mapping[str, Any], descriptor: int) -> list[str]:
    """What starts a process that serves the connection with this file descriptor."""
    interpreter = spawn.get_command_line()
    flags = interpreter[: interpreter.index("-c")]
    folders = [folder for folder in preparation["sys_path"] if isinstance(folder, str)]
    return [*flags, "-c", _PROGRAM, json.dumps(folders), str(descriptor)]


def preparation() -> dict[str, Any]:
    """What a new process needs to know of this one, as `multiprocessing` gives it."""
    data = spawn.get_preparation_data("queue-worker handler")
    kept = ("sys_path", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")
    return {name: data[name] for name in kept if name in data}


def leave_if_unguarded() -> None:
    """Ends a process that was started for handlers and is importing the worker's script, where
    that would run the worker again.
    """
    if _importing.is_set():
        sys.exit(UNGUARDED)


@dataclass(frozen=True, slots=True)
class Start:
    """The first that the worker sends."""

    preparation: dict[str, Any]
    log_level: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is there, and waits for a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the worker sends: which function, the context's plain members, and the span around."""

    type: str
    module: str
    name: str
    context: dict[str, Any]
    max_bytes: int
    trace: Trace = NO_TRACE


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


def main(descriptor: int) -> None:
    """The whole life of the process."""
    # Ctrl-C reaches every process of a terminal; the worker decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(descriptor)
    supervisor.split(connection)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _serve(connection)
    except Interrupted:
        _leave_at_once()


def _serve(connection: "Connection[Any, Any]") -> None:
    start = connection.recv()
    child = Child(connection)
    child.take_logs(start.log_level)
    threading.Thread(target=child.read, name="pipe", daemon=True).start()
    # The worker's script may have handlers in it, which then are found under its name.
    _importing.set()
    spawn.prepare(start.preparation)
    _importing.clear()
    # What it has configured is the worker's to do.
    child.take_logs(start.log_level)
    child.send(Ready())
    child.run()


def _leave_at_once() -> None:
    """The worker waits: of what the interpreter does at its end only what may be missed."""
    with suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Another one must not interrupt what cleans up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted


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
            os._exit(supervisor.PARENT_GONE)

    def _answered(self, answer: Answer) -> None:
        future = self._asked.pop(answer.number)
        if answer.error:
            future.set_exception(unpacked(answer.error) or QueueError("refused"))
        else:
            future.set_result(answer.value)

    def take_logs(self, level: int) -> None:
        """From now on the worker writes what is logged here."""
        logging.basicConfig(level=level, handlers=[Forward(self.send)], force=True)

    def send(self, message: Ask | Ended | Ready | Said) -> None:
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
            # A context of its own: the process is used again.
            return Ended(copy_context().run(self._complete, job))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return Ended(ending_of(error), packed(error))

    def _complete(self, job: Job) -> Completed:
        spec = _spec(job.type, job.module, job.name)
        context = JobContext(**job.context, cancelled=self._cancelled, _link=PipeLink(self.ask))
        with within(job.trace):
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
