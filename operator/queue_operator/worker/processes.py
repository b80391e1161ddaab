"""Handlers in processes of their own: for code that computes, and that must be stoppable.

Children are started when there is a job for them and kept for the next one. They are programs of
their own, not forks of the worker: gRPC does not survive a fork.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import fields
from multiprocessing.connection import wait
from typing import Any, Final

from queue_operator.domain.errors import QueueError
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.tracing.current import current
from queue_operator.worker import child, supervisor
from queue_operator.worker.context import Cancellation, JobContext
from queue_operator.worker.errors import Cancelled, Retry
from queue_operator.worker.forwarding import Said
from queue_operator.worker.handlers import HandlerSpec, cores
from queue_operator.worker.link import JobLink
from queue_operator.worker.runner import Completed, Failed, HandlerFailed, with_ending

logger = logging.getLogger(__name__)

GRACE_S: Final = 2.0
"""Between SIGTERM, which lets a handler clean up, and SIGKILL."""
START_S: Final = 30.0
"""Until a process is there, which imports the worker's script, and waits for its job."""
PROCESS_DIED: Final = "PROCESS_DIED"
PROCESS_NOT_STARTED: Final = "PROCESS_NOT_STARTED"
NO_MAIN_GUARD: Final = "NO_MAIN_GUARD"
_GUARD: Final = '`if __name__ == "__main__":`'
_STAYS_HERE: Final = ("cancelled", "state", "_link")


class ProcessDied(Retry):
    """A handler's process ended before the handler did: killed for its memory, crashed, …"""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=PROCESS_DIED)


class ProcessNotStarted(Exception):
    """There was no process to run the handler in: no fault of the job."""

    def __init__(self, message: str, code: str = PROCESS_NOT_STARTED) -> None:
        super().__init__(message)
        with_ending(self, Failed(ErrorInfo(message, ErrorCategory.SYSTEM, code)))


class Processes:
    """A `runner.ProcessRunner`."""

    def __init__(self, grace_s: float = GRACE_S, start_s: float = START_S) -> None:
        self._grace_s = grace_s
        self._start_s = start_s
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: dict[Cancellation, _Child] = {}
        self._closed = False

    def call(self, spec: HandlerSpec, context: JobContext, max_bytes: int) -> Completed:
        """Waits for the handler. Raises what it raises, Cancelled when it was interrupted,
        ProcessDied and ProcessNotStarted.
        """
        job = _job(spec, context, max_bytes)
        process = self._take(context.cancelled)
        try:
            return process.run(job, context)
        finally:
            self._give_back(context.cancelled, process)

    def interrupt(self, cancelled: Cancellation) -> None:
        """Ends the process that runs the job of this flag, which is set."""
        # Held until it is done: the process may be about to get another job.
        with self._lock:
            if cancelled in self._busy:
                self._busy[cancelled].interrupt(self._grace_s)

    def close(self, timeout_s: float) -> None:
        """Ends them all: at once those that run a handler, the others in good order."""
        with self._lock:
            self._closed = True
            busy, idle = list(self._busy.values()), self._idle
            self._idle = []
        for process in busy:
            process.kill()
        for process in idle:
            process.stop()
        for process in idle:
            process.join(timeout_s)

    def _take(self, cancelled: Cancellation) -> "_Child":
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is None or not process.alive:
            process = self._started()
        with self._lock:
            self._busy[cancelled] = process
            closed = self._closed
        if closed or cancelled.is_set():
            # An interruption that came before this found nobody to interrupt.
            self._give_back(cancelled, process)
            raise Cancelled
        return process

    def _started(self) -> "_Child":
        try:
            return _Child(self._start_s)
        except (OSError, RuntimeError) as error:
            raise ProcessNotStarted(f"the worker cannot start a process: {error}") from error

    def _give_back(self, cancelled: Cancellation, process: "_Child") -> None:
        with self._lock:
            del self._busy[cancelled]
            kept = process.usable and not self._closed and len(self._idle) < cores()
            if kept:
                self._idle.append(process)
        if not kept:
            process.kill()
            process.join(self._grace_s)


def _job(spec: HandlerSpec, context: JobContext, max_bytes: int) -> bytes:
    members = {
        one.name: getattr(context, one.name)
        for one in fields(context)
        if one.name not in _STAYS_HERE
    }
    function = spec.function
    return pickle.dumps(
        child.Job(
            spec.type, function.__module__, function.__qualname__, members, max_bytes, current()
        )
    )


class _Child:
    """One process, and the thread that waits for it: others only leave it notes."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._is_there = False
        self._connection, theirs = multiprocessing.Pipe()
        self._bell, self._ring = socket.socketpair()
        # Whoever rings must not wait: one ring that is not heard yet is enough.
        self._ring.setblocking(False)
        self._dead = False
        self._interrupted = False
        self._killer: threading.Timer | None = None
        preparation = child.preparation()
        with theirs:
            self._process = subprocess.Popen(
                child.command(preparation, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # What a terminal sends to the worker's group is the worker's to pass on.
                start_new_session=True,
            )
        level = logging.getLogger().getEffectiveLevel()
        with contextlib.suppress(OSError):
            self._connection.send(child.Start(preparation, level))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def usable(self) -> bool:
        return not (self._dead or self._interrupted)

    def run(self, job: bytes, context: JobContext) -> Completed:
        notes = _Notes(self._ring)
        context.cancelled.watch(lambda: notes.put(child.Cancel()))
        try:
            self._await_start()
            self._connection.send(job)
            return self._until_ended(notes, context)
        except (EOFError, OSError):
            raise self._death() from None

    def _await_start(self) -> None:
        """Until the process has said that it is there, once in its life."""
        until_s = time.monotonic() + self._start_s
        while not self._is_there:
            if not self._connection.poll(max(until_s - time.monotonic(), 0.0)):
                self.kill()
                raise ProcessNotStarted(
                    f"the handler's process was not there within {self._start_s:g} s. It imports "
                    "the script that runs the worker, where all that is not meant for it belongs "
                    f"under {_GUARD}"
                )
            match self._connection.recv():
                case child.Ready():
                    self._is_there = True
                case Said() as said:
                    said.write()

    def _until_ended(self, notes: "_Notes", context: JobContext) -> Completed:
        while True:
            ready = wait([self._connection, self._bell])
            if self._bell in ready:
                self._bell.recv(4096)
            for note in notes.take():
                self._connection.send(note)
            if self._connection in ready:
                match self._connection.recv():
                    case child.Ended() as ended:
                        return _completed(ended)
                    case child.Ask() as ask:
                        _make(ask, context._link, notes)
                    case Said() as said:
                        said.write()

    def _death(self) -> Exception:
        self._dead = True
        exit_code = self._exit_code(GRACE_S)
        if self._interrupted:
            return Cancelled("the handler's process was ended")
        if exit_code == child.UNGUARDED and not self._is_there:
            return ProcessNotStarted(
                "the handler's process imports the script that runs the worker, which would run it "
                f"again there: put worker.run() under {_GUARD}",
                NO_MAIN_GUARD,
            )
        if not self._is_there:
            return ProcessNotStarted(
                f"the handler's process ended before it could begin: {_how(exit_code)}; what it "
                "said is in the worker's output"
            )
        return ProcessDied(f"the handler's process died: {_how(exit_code)}")

    def _exit_code(self, timeout_s: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def interrupt(self, grace_s: float) -> None:
        """SIGTERM to the handler and all that it has started, and after the grace SIGKILL."""
        if not self._interrupted:
            self._interrupted = True
            self._signal(signal.SIGTERM)
            self._killer = threading.Timer(grace_s, self._end_all)
            self._killer.daemon = True
            self._killer.start()

    def kill(self) -> None:
        self._interrupted = True
        self._end_all()

    def _end_all(self) -> None:
        self._signal(supervisor.END_ALL if supervisor.SUPPORTED else signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """To the supervisor, which passes it on. Without one the process leads a group."""
        with contextlib.suppress(ProcessLookupError):
            if supervisor.SUPPORTED:
                self._process.send_signal(number)
            elif self.alive:
                os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """Lets it close what it holds; there is no job."""
        try:
            self._connection.send(child.Stop())
        except OSError:
            self.kill()

    def join(self, timeout_s: float) -> None:
        if self._exit_code(timeout_s) is None:
            self.kill()
            if self._exit_code(GRACE_S) is None:
                # The supervisor itself hangs: nobody is left who knows what it has started.
                self._process.kill()
                self._process.wait()
        if self._killer is not None:
            self._killer.cancel()
        self._connection.close()
        self._bell.close()
        self._ring.close()


class _Notes:
    """What has to be told to the handler of one job. Its process may have another one already
    when the last arrives, which then nobody reads.
    """

    def __init__(self, ring: socket.socket) -> None:
        self._ring = ring
        self._notes: deque[child.Cancel | child.Answer] = deque()

    def put(self, note: child.Cancel | child.Answer) -> None:
        """From any thread."""
        self._notes.append(note)
        with contextlib.suppress(OSError):
            self._ring.send(b"!")

    def take(self) -> Iterator[child.Cancel | child.Answer]:
        while self._notes:
            yield self._notes.popleft()


def _make(ask: child.Ask, link: JobLink, notes: _Notes) -> None:
    """A call of the context. Its answer is given when there is one."""
    try:
        answer = getattr(link, ask.method)(*ask.arguments)
    except Exception as error:
        notes.put(_refusal(ask.number, error))
        return
    if isinstance(answer, Future):
        answer.add_done_callback(lambda done: notes.put(_answer(ask.number, done)))
    else:
        notes.put(child.Answer(ask.number, answer))


def _answer(number: int, done: "Future[Any]") -> child.Answer:
    error = Cancelled() if done.cancelled() else done.exception()
    return child.Answer(number, done.result()) if error is None else _refusal(number, error)


def _refusal(number: int, error: BaseException) -> child.Answer:
    return child.Answer(number, error=child.packed(error) or child.packed(QueueError(str(error))))


def _completed(ended: child.Ended) -> Completed:
    if isinstance(ended.ending, Completed):
        return ended.ending
    # The handler's own, so that middleware can tell; it means what it meant there.
    error = child.unpacked(ended.error)
    raise HandlerFailed(ended.ending) if error is None else with_ending(error, ended.ending)


def _how(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit status {exit_code}"
    return f"signal {signal.Signals(-exit_code).name}"
