"""Between the domain and protobuf on the server: the only place that knows both."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument, QuotaExceeded
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Assignment,
    CancelRequest,
    Job,
    Submitted,
)
from queue_operator.domain.lease import Held, LeaseAnswer, LeaseStatus
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, BackoffStrategy, backoff_of
from queue_operator.domain.running import (
    CheckpointAnswer,
    CheckpointReport,
    LogLine,
    LogReport,
    SpawnRequest,
)
from queue_operator.domain.states import Event
from queue_operator.domain.texts import cut
from queue_operator.domain.traces import trace_of
from queue_operator.domain.units import in_submission, told
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    MAX_DURATION_S,
    check_bytes,
    check_duration,
    check_json_depth,
    check_text,
)
from queue_operator.wire.v1 import worker_pb2 as pb

RESULT_NOT_STORABLE: Final = "RESULT_NOT_STORABLE"
_DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
JSON: Final = "application/json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CONTEXT_ENTRIES: Final = 64
_MOST_ENTRIES: Final = 1024
_CONTEXT_BYTES: Final = 1024
_MAX_NUMBER: Final = 2**63

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Sizes of what a worker sends: bytes for results and texts, characters for ids.

    Longer texts are cut; a longer result fails its job for good; a longer id is refused.
    """

    result_bytes: int = 1024 * 1024
    error_message_bytes: int = 8 * 1024
    stack_trace_bytes: int = 64 * 1024
    progress_message_bytes: int = 1024
    log_line_bytes: int = 16 * 1024
    id_characters: int = 255


DEFAULT_WIRE_LIMITS: Final = WireLimits()

_EVENTS: Final[dict[pb.OutcomeKind.ValueType, Event]] = {
    pb.OUTCOME_KIND_COMPLETE: Event.COMPLETE,
    pb.OUTCOME_KIND_FAIL: Event.FAIL,
    pb.OUTCOME_KIND_HAND_BACK: Event.HAND_BACK,
    pb.OUTCOME_KIND_ACK_EXECUTING: Event.ACK_EXECUTING,
    pb.OUTCOME_KIND_ACK_UNKNOWN: Event.ACK_UNKNOWN,
}

_CATEGORIES: Final[dict[pb.ErrorCategory.ValueType, ErrorCategory]] = {
    pb.ERROR_CATEGORY_UNSPECIFIED: ErrorCategory.TEMPORARY,
    pb.ERROR_CATEGORY_TEMPORARY: ErrorCategory.TEMPORARY,
    pb.ERROR_CATEGORY_PERMANENT: ErrorCategory.PERMANENT,
    pb.ERROR_CATEGORY_TIMEOUT: ErrorCategory.TIMEOUT,
    pb.ERROR_CATEGORY_SYSTEM: ErrorCategory.SYSTEM,
}

_WIRE_STATUSES: Final[dict[LeaseStatus, pb.LeaseStatus.ValueType]] = {
    LeaseStatus.CURRENT: pb.LEASE_STATUS_CURRENT,
    LeaseStatus.LOST: pb.LEASE_STATUS_LOST,
    LeaseStatus.TAKEN_OVER: pb.LEASE_STATUS_TAKEN_OVER,
    LeaseStatus.ENDED: pb.LEASE_STATUS_ENDED,
}


def duration_to_wire(seconds: float) -> Duration:
    nanos = round(seconds * 1_000_000_000)
    return Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def seconds_from_wire(field: str, duration: Duration) -> float:
    """Raises InvalidArgument for a duration that is negative or over a century."""
    seconds: float = duration.seconds + duration.nanos / 1_000_000_000
    check_duration(field, seconds)
    return seconds


def cut_storable(text: str, limit_bytes: int) -> str:
    """At most `limit_bytes` of UTF-8, without the NUL characters no store can hold."""
    return cut(text.replace("\x00", "\N{REPLACEMENT CHARACTER}"), limit_bytes)


# Assignments


def add_assignment(batch: pb.AssignmentBatch, assignment: Assignment) -> pb.Assignment:
    """Writes the job to the end of the batch, which is cheaper than to copy it there."""
    message = batch.assignments.add(
        job_id=assignment.job_id,
        token=assignment.token,
        type=assignment.type,
        payload=assignment.payload,
        content_type=assignment.content_type,
        tags=sorted(assignment.tags),
        attempt=assignment.attempt,
        correlation_id=assignment.correlation_id,
        priority=assignment.priority,
    )
    since = assignment.created_at - _EPOCH
    message.created_at.seconds = since.days * 86_400 + since.seconds
    message.created_at.nanos = since.microseconds * 1000
    if assignment.timeout_s is not None:
        # One odd row must not end the session that it would be written to.
        left_s = min(max(assignment.timeout_s, 0.0), MAX_DURATION_S)
        message.timeout.CopyFrom(duration_to_wire(left_s))
    if assignment.traceparent:
        message.traceparent = assignment.traceparent
        message.tracestate = assignment.tracestate
    if assignment.parent_result is not None:
        message.parent_result = assignment.parent_result
        message.parent_content_type = assignment.parent_content_type
    if assignment.checkpoint is not None:
        message.checkpoint = assignment.checkpoint
    return message


# Outcomes


def error_from_wire(message: pb.ErrorInfo, limits: WireLimits = DEFAULT_WIRE_LIMITS) -> ErrorInfo:
    """Texts over their limits are cut; a category this version does not know is TEMPORARY."""
    return ErrorInfo(
        message=cut_storable(message.message, limits.error_message_bytes)
        or "the worker gave no message",
        category=_CATEGORIES.get(message.category, ErrorCategory.TEMPORARY),
        code=cut_storable(message.code, limits.id_characters),
        stack_trace=cut_storable(message.stack_trace, limits.stack_trace_bytes),
        context=_context(message.context),
    )


def _context(entries: Iterable[pb.ContextEntry]) -> dict[str, str]:
    # Of a great many not all are put in order: any of them will do.
    told = {entry.key: entry.value for entry in islice(entries, _MOST_ENTRIES)}
    kept = sorted(told.items())[:_CONTEXT_ENTRIES]
    return {
        cut_storable(key, _CONTEXT_BYTES): cut_storable(value, _CONTEXT_BYTES)
        for key, value in kept
    }


def outcome_from_wire(
    message: pb.Outcome,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    limits: WireLimits = DEFAULT_WIRE_LIMITS,
) -> Outcome:
    """What a worker says became of a job.

    A result over its limit becomes a PERMANENT failure, code RESULT_NOT_STORABLE. Raises
    InvalidArgument for a kind this version does not know, or an unusable id or token.
    """
    check_text("job_id", message.job_id, limits.id_characters)
    check_text("token", message.token, limits.id_characters)
    event = _EVENTS.get(message.kind)
    if event is None:
        raise InvalidArgument("kind", f"{message.kind} is not a kind of outcome")
    if event is Event.COMPLETE:
        return _completion(message, namespace, limits)
    return Outcome(
        job_id=message.job_id,
        event=event,
        namespace=namespace,
        token=message.token,
        error=_failure(message, event, limits),
        retry_after_s=(
            seconds_from_wire("retry_after", message.retry_after)
            if message.HasField("retry_after")
            else None
        ),
        worker_plane=True,
    )


def _failure(message: pb.Outcome, event: Event, limits: WireLimits) -> ErrorInfo | None:
    if event is Event.FAIL or message.HasField("error"):
        return error_from_wire(message.error, limits)
    return None


def _completion(message: pb.Outcome, namespace: str, limits: WireLimits) -> Outcome:
    size = len(message.result)
    content_type = message.result_content_type or _DEFAULT_CONTENT_TYPE
    check_text("result_content_type", content_type, limits.id_characters)
    if size <= limits.result_bytes:
        return Outcome(
            job_id=message.job_id,
            event=Event.COMPLETE,
            namespace=namespace,
            token=message.token,
            result=message.result,
            result_content_type=content_type,
            worker_plane=True,
        )
    return Outcome(
        job_id=message.job_id,
        event=Event.FAIL,
        namespace=namespace,
        token=message.token,
        error=ErrorInfo(
            message=f"the result has {size} bytes; the limit is {limits.result_bytes}",
            category=ErrorCategory.PERMANENT,
            code=RESULT_NOT_STORABLE,
        ),
        worker_plane=True,
    )


def ack_to_wire(settled: Settled, token: str) -> pb.OutcomeAck:
    """`token` is the outcome's: a worker may have sent two for one job."""
    if settled.error is not None:
        return pb.OutcomeAck(
            job_id=settled.job_id,
            token=token,
            error_code=settled.error.code,
            error_message=settled.error.message,
        )
    return pb.OutcomeAck(
        job_id=settled.job_id, token=token, state=settled.state.value if settled.state else ""
    )


# Checkpoints


def checkpoint_from_wire(
    message: pb.Checkpoint, *, namespace: str = DEFAULT_NAMESPACE
) -> CheckpointReport:
    """Not checked: the store names what is wrong with one in its answer."""
    return CheckpointReport(
        job_id=message.job_id,
        token=message.token,
        namespace=namespace,
        number=message.number,
        data=message.data,
    )


def checkpoint_ack_to_wire(answer: CheckpointAnswer, report: CheckpointReport) -> pb.CheckpointAck:
    return pb.CheckpointAck(
        job_id=answer.job_id,
        token=report.token,
        number=report.number,
        error_code=answer.error.code if answer.error else "",
        error_message=answer.error.message if answer.error else "",
        cancel_requested=answer.cancel_requested,
        cancel_forced=answer.cancel_forced,
    )


# Children


def spawn_from_wire(
    message: pb.Spawn,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    payload_bytes: int = DEFAULT_LIMITS.payload_bytes,
) -> SpawnRequest:
    """Raises PayloadTooLarge, or InvalidArgument for a word or a duration that means nothing; the
    store looks at the rest.
    """
    job = message.job
    # To read a document costs what it is long.
    check_bytes("payload", job.payload, payload_bytes)
    trace = trace_of(job.traceparent, job.tracestate)
    if job.content_type == JSON:
        _check_json("payload", job.payload)
    return SpawnRequest(
        parent_id=message.parent_id,
        token=message.token,
        namespace=namespace,
        key=message.key,
        job=Job(
            id=job.job_id,
            type=job.type,
            payload=job.payload,
            content_type=job.content_type or _DEFAULT_CONTENT_TYPE,
            namespace=namespace,
            tags=frozenset(job.tags),
            priority=_word("priority", job.priority, Priority, Priority.NORMAL),
            delay_s=_optional_s("delay", job, "delay"),
            scheduled_at=_optional_time("scheduled_at", job),
            timeout_s=_optional_s("timeout", job, "timeout"),
            max_attempts=job.max_attempts,
            backoff=_backoff_of(job),
            correlation_id=job.correlation_id,
            idempotency_key=job.idempotency_key,
            depends_on=tuple(job.depends_on),
            dependency_mode=_word(
                "dependency_type", job.dependency_type, DependencyMode, DependencyMode.AFTER
            ),
            callback_url=job.callback_url,
            suspended=job.suspended,
            traceparent=trace.parent,
            tracestate=trace.state,
        ),
    )


def _check_json(field: str, text: bytes) -> None:
    check_json_depth(field, text)
    try:
        json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(field, f"is not JSON: {error}") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _word(field: str, text: str, choices: type[_Choice], absent: _Choice) -> _Choice:
    try:
        return choices(text) if text else absent
    except ValueError:
        raise InvalidArgument(field, f"must be one of {', '.join(choices)}") from None


def _optional_s(field: str, message: pb.ChildJob | pb.ChildBackoff, name: str) -> float | None:
    if not message.HasField(name):  # type: ignore[arg-type]
        return None
    return seconds_from_wire(field, getattr(message, name))


def _optional_time(field: str, job: pb.ChildJob) -> datetime | None:
    if not job.HasField("scheduled_at"):
        return None
    try:
        return job.scheduled_at.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(field, "must be within the years 2 to 9998, in UTC") from None


def _backoff_of(job: pb.ChildJob) -> Backoff | None:
    """The first claim resolves both or none: who says how often says how fast, if only as usual."""
    if job.HasField("backoff"):
        return _backoff(job.backoff)
    return DEFAULT_BACKOFF if job.max_attempts else None


def _backoff(message: pb.ChildBackoff) -> Backoff:
    strategy = _word(
        "backoff.strategy", message.strategy, BackoffStrategy, DEFAULT_BACKOFF.strategy
    )
    return backoff_of(
        strategy,
        initial_delay_s=_optional_s("backoff.initial_delay", message, "initial_delay"),
        max_delay_s=_optional_s("backoff.max_delay", message, "max_delay"),
        multiplier=message.multiplier or None,
        delays_s=tuple(
            seconds_from_wire(f"backoff.delays[{n}]", delay)
            for n, delay in enumerate(message.delays)
        ),
    )


def spawn_answer_to_wire(answer: Submitted, message: pb.Spawn) -> pb.SpawnAnswer:
    named = pb.SpawnAnswer(parent_id=message.parent_id, token=message.token, key=message.key)
    if answer.error is None:
        named.job_id = answer.job_id
    else:
        named.error_code = answer.error.code
        named.error_message = told(answer.error, in_submission)
        if isinstance(answer.error, QuotaExceeded):
            named.quota.CopyFrom(_quota_to_wire(answer.error))
    return named


def _quota_to_wire(error: QuotaExceeded) -> pb.QuotaRefusal:
    refusal = pb.QuotaRefusal(limit=error.limit, current=error.current, maximum=error.maximum)
    if error.retry_after_s is not None:
        refusal.retry_after.CopyFrom(duration_to_wire(error.retry_after_s))
    return refusal


def quota_from_wire(refusal: pb.QuotaRefusal) -> QuotaExceeded:
    given = refusal.HasField("retry_after")
    wait_s = seconds_from_wire("retry_after", refusal.retry_after) if given else None
    return QuotaExceeded(refusal.limit, refusal.current, refusal.maximum, wait_s)


# Log lines


def logs_from_wire(
    batch: pb.LogBatch,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    limits: WireLimits = DEFAULT_WIRE_LIMITS,
) -> list[LogReport]:
    """By token. Nobody waits for them, so what cannot be a line is left out."""
    lines: dict[tuple[str, str], list[LogLine]] = {}
    for message in batch.lines:
        named = 0 < len(message.job_id) <= limits.id_characters
        if named and "\x00" not in message.job_id and 0 < message.number < _MAX_NUMBER:
            said = lines.setdefault((message.job_id, message.token), [])
            said.append(_log_line(message, limits))
    return [
        LogReport(job_id=job_id, token=token, namespace=namespace, lines=tuple(said))
        for (job_id, token), said in lines.items()
    ]


def _log_line(message: pb.LogLine, limits: WireLimits) -> LogLine:
    try:
        at = message.at.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        at = _EPOCH
    fields = message.fields if len(message.fields) <= limits.log_line_bytes else "{}"
    return LogLine(
        number=message.number,
        at=at,
        level=cut_storable(message.level, limits.id_characters),
        message=cut_storable(message.message, limits.log_line_bytes),
        fields=fields or "{}",
    )


# Leases and cancels


def held_from_wire(
    messages: Iterable[pb.HeldJob],
    *,
    namespace: str = DEFAULT_NAMESPACE,
    field: str = "held",
    limits: WireLimits = DEFAULT_WIRE_LIMITS,
) -> list[Held]:
    """Raises InvalidArgument naming the entry whose id or token is unusable."""
    held = []
    for index, message in enumerate(messages):
        check_text(f"{field}[{index}].job_id", message.job_id, limits.id_characters)
        check_text(f"{field}[{index}].token", message.token, limits.id_characters)
        held.append(Held(message.job_id, message.token, namespace))
    return held


def lease_answer_to_wire(answer: LeaseAnswer) -> pb.LeaseAnswer:
    return pb.LeaseAnswer(
        job_id=answer.job_id,
        token=answer.token,
        status=_WIRE_STATUSES[answer.status],
        cancel_requested=answer.cancel_requested,
        cancel_forced=answer.cancel_forced,
    )


def cancel_to_wire(request: CancelRequest) -> pb.CancelRequest:
    return pb.CancelRequest(
        job_id=request.job_id, token=request.token, force=request.force, reason=request.reason
    )
