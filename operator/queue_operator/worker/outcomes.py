"""Outcomes on the wire, and the buffer that keeps each until the server has stored it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.texts import cut
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.content import storable
from queue_operator.worker.runner import Completed, Ending, Failed, Fate, Run, Stopped

MAX_BATCH: Final = 1024
MAX_BATCH_BYTES: Final = 3 * 1024 * 1024
RESEND_TICKS: Final = 3
MAX_MESSAGE_BYTES: Final = 8 * 1024
MAX_TRACE_BYTES: Final = 64 * 1024
MAX_CODE_BYTES: Final = 255
MAX_CONTEXT_ENTRIES: Final = 64
MAX_CONTEXT_BYTES: Final = 1024

_CATEGORIES: Final = {
    ErrorCategory.TEMPORARY: wire.ERROR_CATEGORY_TEMPORARY,
    ErrorCategory.PERMANENT: wire.ERROR_CATEGORY_PERMANENT,
    ErrorCategory.TIMEOUT: wire.ERROR_CATEGORY_TIMEOUT,
    ErrorCategory.SYSTEM: wire.ERROR_CATEGORY_SYSTEM,
}

TIMED_OUT: Final = ErrorInfo(
    message="the handler ran longer than the job's timeout",
    category=ErrorCategory.TIMEOUT,
    code="TIMEOUT",
)
_NOT_ASKED: Final = ErrorInfo(
    message="the handler stopped as if cancelled, but nobody asked it to",
    category=ErrorCategory.TEMPORARY,
    code="UNEXPECTED_CANCEL",
)


def conclude(run: Run, ending: Ending) -> wire.Outcome | None:
    """What to tell the server when a handler has ended; None when it no longer asks."""
    if run.fate in (Fate.SETTLED, Fate.TAKEN_OVER):
        return None
    if run.fate is Fate.ENDED:
        return completion(run, ending) if isinstance(ending, Completed) else None
    if run.cancel_requested and isinstance(ending, Stopped):
        return bare(run.job_id, run.token, wire.OUTCOME_KIND_ACK_EXECUTING)
    match ending:
        case Completed():
            return completion(run, ending)
        case Failed():
            return failure(run, ending.error, ending.retry_after_s)
        case Stopped():
            return failure(run, _NOT_ASKED)


def completion(run: Run, ending: Completed) -> wire.Outcome:
    return wire.Outcome(
        job_id=run.job_id,
        token=run.token,
        kind=wire.OUTCOME_KIND_COMPLETE,
        result=ending.body,
        result_content_type=ending.content_type,
    )


def failure(run: Run, error: ErrorInfo, retry_after_s: float | None = None) -> wire.Outcome:
    return failed(run.job_id, run.token, error, retry_after_s)


def failed(
    job_id: str, token: str, error: ErrorInfo, retry_after_s: float | None = None
) -> wire.Outcome:
    outcome = wire.Outcome(
        job_id=job_id, token=token, kind=wire.OUTCOME_KIND_FAIL, error=_error_info(error)
    )
    if retry_after_s is not None:
        outcome.retry_after.FromTimedelta(timedelta(seconds=retry_after_s))
    return outcome


def no_handler(type_: str) -> ErrorInfo:
    return ErrorInfo(
        message=f"this worker has no handler for {type_!r}",
        category=ErrorCategory.SYSTEM,
        code="NO_HANDLER",
    )


def bare(job_id: str, token: str, kind: wire.OutcomeKind.ValueType) -> wire.Outcome:
    return wire.Outcome(job_id=job_id, token=token, kind=kind)


def _error_info(error: ErrorInfo) -> wire.ErrorInfo:
    return wire.ErrorInfo(
        category=_CATEGORIES[error.category],
        code=cut(storable(str(error.code)), MAX_CODE_BYTES),
        message=cut(storable(error.message), MAX_MESSAGE_BYTES),
        # The end of a trace names the fault.
        stack_trace=cut(storable(error.stack_trace), MAX_TRACE_BYTES, keep_end=True),
        # Whatever its size, an outcome must fit a message: one that does not would end every
        # session that it is sent through.
        context=[
            wire.ContextEntry(key=_context_text(key), value=_context_text(value))
            for key, value in list(error.context.items())[:MAX_CONTEXT_ENTRIES]
        ],
    )


def _context_text(value: object) -> str:
    return cut(storable(str(value)), MAX_CONTEXT_BYTES)


class OutcomeBuffer:
    """Outcomes by (job, token), in order of arrival, from `add` until `acknowledge`."""

    def __init__(self) -> None:
        self._unacknowledged: dict[tuple[str, str], wire.Outcome] = {}
        self._unsent: dict[tuple[str, str], None] = {}
        self._sent_ticks_ago: dict[tuple[str, str], int] = {}
        # The token of the completion by job, for `readdress`, which every assignment asks.
        self._completed: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._unacknowledged)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._unacknowledged

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(tuple(self._unacknowledged))

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def add(self, outcome: wire.Outcome) -> None:
        key = (outcome.job_id, outcome.token)
        self._unacknowledged[key] = outcome
        self._unsent[key] = None
        if outcome.kind == wire.OUTCOME_KIND_COMPLETE:
            self._completed[outcome.job_id] = outcome.token

    def acknowledge(self, job_id: str, token: str) -> wire.Outcome | None:
        """The outcome that is done with, None if there was none of this token."""
        self._unsent.pop((job_id, token), None)
        self._sent_ticks_ago.pop((job_id, token), None)
        if self._completed.get(job_id) == token:
            del self._completed[job_id]
        return self._unacknowledged.pop((job_id, token), None)

    def readdress(self, job_id: str, token: str) -> bool:
        """Moves an unacknowledged completion of the job to a new token, and says whether
        there was one. Its work is done: to run it again would do it twice. A failure stays
        as it is, because the new token may well be the retry that it asked for.
        """
        known = self._completed.get(job_id)
        outcome = self.acknowledge(job_id, known) if known is not None else None
        if outcome is None:
            return False
        moved = wire.Outcome()
        moved.CopyFrom(outcome)
        moved.token = token
        self.add(moved)
        return True

    def take_batches(self, max_bytes: int = MAX_BATCH_BYTES) -> list[wire.OutcomeBatch]:
        """Everything unsent, in batches that fit a message."""
        batches: list[wire.OutcomeBatch] = []
        size = 0
        for key in self._unsent:
            outcome = self._unacknowledged[key]
            size += outcome.ByteSize()
            if not batches or len(batches[-1].outcomes) == MAX_BATCH or size > max_bytes:
                batches.append(wire.OutcomeBatch())
                size = outcome.ByteSize()
            batches[-1].outcomes.append(outcome)
        self._sent_ticks_ago |= dict.fromkeys(self._unsent, 0)
        self._unsent.clear()
        return batches

    def tick(self) -> None:
        """Sends again what was not acknowledged for three ticks: a server whose store was
        down keeps the stream and says nothing. It recognises a repeat.
        """
        for key, ticks in self._sent_ticks_ago.items():
            self._sent_ticks_ago[key] = ticks + 1
        overdue = [key for key, ticks in self._sent_ticks_ago.items() if ticks >= RESEND_TICKS]
        for key in overdue:
            del self._sent_ticks_ago[key]
            self._unsent[key] = None

    def requeue(self) -> None:
        """After a cut: what was sent and not acknowledged is sent again, in its order."""
        self._unsent = dict.fromkeys(self._unacknowledged)
        self._sent_ticks_ago.clear()

    def clear(self) -> None:
        self._unacknowledged.clear()
        self._completed.clear()
        self._unsent.clear()
        self._sent_ticks_ago.clear()
