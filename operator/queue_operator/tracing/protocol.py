"""What doors and workers tell of jobs for their traces."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.traces import NO_TRACE, Trace


class Sent(Protocol):
    """A job as a door names it."""

    @property
    def id(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def namespace(self) -> str: ...


class Sending(Protocol):
    """A submission that is under way."""

    def trace(self, own: Trace = NO_TRACE) -> Trace:
        """What a job carries that the caller had given `own`."""
        ...

    def about(self, jobs: Sequence[Sent]) -> None:
        """Which jobs these are, once they are known."""
        ...


class Beginning(Sending, Protocol):
    """A submission that may turn out to be none."""

    def stored(self) -> None:
        """It was one: only now its span is recorded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a job; `trace` is that of its submission."""

    job_id: str
    type: str
    namespace: str
    number: int
    worker: str
    correlation_id: str = ""
    trace: Trace = NO_TRACE


class Running(Protocol):
    """A handler that runs."""

    @property
    def trace(self) -> Trace:
        """Its own span, for whatever it starts elsewhere."""
        ...

    def ended(self, outcome: str, error: ErrorInfo | None = None) -> None:
        """How it ended; a run that is left without this was stopped."""
        ...


class Settling(Protocol):
    """An outcome that was told, and not answered yet."""

    def answered(self, state: str, error_code: str = "") -> None:
        """The state that the job has now, or why the outcome was refused."""
        ...


class Tracing(Protocol):
    """Spans of what happens to jobs. Never raises, and never waits for whoever collects them."""

    def sending(
        self, door: str, given: Trace = NO_TRACE, links: Iterable[Trace] = ()
    ) -> AbstractContextManager[Sending]:
        """Around a submission: `given` is the caller's span, `links` those of single jobs."""
        ...

    def beginning(self, door: str, given: Trace = NO_TRACE) -> Beginning:
        """A submission of a job that may be known already."""
        ...

    def running(self, attempt: Attempt) -> AbstractContextManager[Running]:
        """Around a handler, which runs in the span."""
        ...

    def settling(self, attempt: Attempt, of: Trace, outcome: str, error_code: str = "") -> Settling:
        """From when an outcome is told until it is answered; `of` is the span of the run."""
        ...

    def close(self, timeout_s: float) -> None:
        """Sends what is left, for at most so long."""
        ...
