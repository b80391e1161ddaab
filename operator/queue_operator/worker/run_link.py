"""A run's way to the session, from whichever thread its handler is on."""

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any, Protocol

from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.runner import Run
from queue_operator.worker.shipping import Line, LineCounter, LogBuffer


class Reporter(Protocol):
    """What a session does with it, on its own thread."""

    logs: LogBuffer

    def progress(self, run: Run, percent: int, message: str) -> None: ...

    def checkpoint(self, run: Run, data: bytes, done: "Future[None]") -> None: ...

    def spawn(self, run: Run, key: str, job: wire.ChildJob, done: "Future[str]") -> None: ...


class RunLink:
    """A run's way to the session, from any thread."""

    __slots__ = ("_lines", "_places", "_post", "_progress", "_session", "_telling", "run")

    def __init__(
        self, session: Reporter, attempt: int, post: Callable[[Callable[[], object]], object]
    ) -> None:
        self._session = session
        self._post = post
        self._places = count(1)
        self._lines = LineCounter(attempt)
        self._progress = (0, "")
        self._telling = False
        self.run: Run

    def report(self, percent: int, message: str) -> None:
        # A handler may report faster than the session can hear: the newest is enough.
        self._progress = (percent, message)
        if not self._telling:
            self._telling = True
            self._post(self._tell_progress)

    def _tell_progress(self) -> None:
        # Before the look: what is reported from now on is seen, or told anew.
        self._telling = False
        self._session.progress(self.run, *self._progress)

    def checkpoint(self, data: bytes) -> "Future[None]":
        done = _asked()
        self._post(lambda: self._session.checkpoint(self.run, data, done))
        return done

    def log(self, said: Line) -> None:
        self._session.logs.add(self.run, self._lines, said)

    def spawn(self, key: str | None, job: wire.ChildJob) -> "Future[str]":
        # No key of the handler's own looks like a place.
        told = f"#{next(self._places)}" if key is None else f"={key}"
        done: Future[str] = _asked()
        self._post(lambda: self._session.spawn(self.run, told, job, done))
        return done


def _asked() -> "Future[Any]":
    done: Future[Any] = Future()
    # Whoever stops waiting must not keep the answer from being set.
    done.set_running_or_notify_cancel()
    return done
