"""No traces: a caller's own goes on from submission to run, and nothing is recorded."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.traces import NO_TRACE, Trace
from queue_operator.tracing.protocol import Attempt, Sent


class _Block:
    """Nothing begins or ends with it."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


class _Passing(_Block):
    """A submission, a run or an outcome of which nothing is recorded."""

    __slots__ = ("_given",)

    def __init__(self, given: Trace = NO_TRACE) -> None:
        self._given = given

    def trace(self, own: Trace = NO_TRACE) -> Trace:
        return own if own.parent else self._given

    def about(self, jobs: Sequence[Sent]) -> None:
        return None

    def stored(self) -> None:
        return None


class _Unseen(_Block):
    """A run or an outcome of which nothing is recorded."""

    __slots__ = ()
    trace: Final = NO_TRACE

    def ended(self, outcome: str, error: ErrorInfo | None = None) -> None:
        return None

    def answered(self, state: str, error_code: str = "") -> None:
        return None


_NOTHING_GIVEN: Final = _Passing()
_UNSEEN: Final = _Unseen()


class Off:
    """A `protocol.Tracing` that records nothing."""

    def sending(self, door: str, given: Trace = NO_TRACE, links: Iterable[Trace] = ()) -> _Passing:
        return _Passing(given) if given.parent else _NOTHING_GIVEN

    def beginning(self, door: str, given: Trace = NO_TRACE) -> _Passing:
        return _Passing(given)

    def running(self, attempt: Attempt) -> _Unseen:
        return _UNSEEN

    def settling(self, attempt: Attempt, of: Trace, outcome: str, error_code: str = "") -> _Unseen:
        return _UNSEEN

    def close(self, timeout_s: float) -> None:
        return None


OFF: Final = Off()
