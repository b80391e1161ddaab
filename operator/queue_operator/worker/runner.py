"""Running one job: from an assignment to how its handler ended."""

import traceback
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.worker.context import JobContext
from queue_operator.worker.errors import Cancelled, PermanentError, Retry
from queue_operator.worker.handlers import HandlerSpec, encode_result


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
    """A job in this process. Only the session's thread changes it."""

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


async def run_async(run: Run) -> Ending:
    """A cancellation of the task passes through; everything else becomes an Ending."""
    try:
        value = await run.spec.function(*run.spec.arguments(run.context))
        return _completed(run, value)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return ending_of(error)


def run_sync(run: Run) -> Ending:
    try:
        value = run.spec.function(*run.spec.arguments(run.context))
        return _completed(run, value)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return ending_of(error)


def _completed(run: Run, value: Any) -> Completed:
    return Completed(*encode_result(value, run.max_result_bytes))


def ending_of(error: BaseException) -> Ending:
    """What an exception of a handler means to the queue."""
    match error:
        case Cancelled():
            return Stopped()
        case Retry():
            return Failed(_info(error, ErrorCategory.TEMPORARY, error.code), error.after_s)
        case PermanentError():
            return Failed(
                ErrorInfo(
                    message=_text(error),
                    category=ErrorCategory.PERMANENT,
                    code=error.code,
                    stack_trace=_trace(error),
                    context=error.context,
                )
            )
        case _:
            return Failed(_info(error, ErrorCategory.TEMPORARY, type(error).__name__))


def _info(error: BaseException, category: ErrorCategory, code: str) -> ErrorInfo:
    message = _text(error) or type(error).__name__
    return ErrorInfo(message=message, category=category, code=code, stack_trace=_trace(error))


def _text(error: BaseException) -> str:
    """Its message. A handler whose exception cannot say what is wrong has failed all the same."""
    try:
        return str(error)
    except Exception as other:
        return f"{type(error).__name__}, whose text cannot be had: {type(other).__name__}"


def _trace(error: BaseException) -> str:
    # The first frame is this module's own and would tell the reader nothing.
    own = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, own.tb_next if own else None))
