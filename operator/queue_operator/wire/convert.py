"""Between the domain and protobuf on the server: the only place that knows both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE, Assignment, CancelRequest
from queue_operator.domain.lease import Held, LeaseAnswer, LeaseStatus
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event
from queue_operator.domain.validation import MAX_DURATION_S, check_duration, check_text
from queue_operator.wire.v1 import worker_pb2 as pb

RESULT_NOT_STORABLE: Final = "RESULT_NOT_STORABLE"
_DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CONTEXT_ENTRIES: Final = 64
_CONTEXT_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Sizes of what a worker sends: bytes for results and texts, characters for ids.

    Longer texts are cut; a longer result fails its job for good; a longer id is refused.
    """

    result_bytes: int = 1024 * 1024
    error_message_bytes: int = 8 * 1024
    stack_trace_bytes: int = 64 * 1024
    progress_message_bytes: int = 1024
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


def cut(text: str, limit_bytes: int) -> str:
    """At most `limit_bytes` of UTF-8, without the NUL characters no store can hold."""
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if len(text) * 4 <= limit_bytes:
        return text
    return text.encode()[:limit_bytes].decode(errors="ignore")


# Assignments


def assignment_to_wire(assignment: Assignment) -> pb.Assignment:
    message = pb.Assignment(
        job_id=assignment.job_id,
        token=assignment.token,
        type=assignment.type,
        payload=assignment.payload,
        content_type=assignment.content_type,
        tags=sorted(assignment.tags),
        attempt=assignment.attempt,
        created_at=_timestamp(assignment),
        correlation_id=assignment.correlation_id,
        priority=assignment.priority.value,
    )
    if assignment.timeout_s is not None:
        # One odd row must not end the session that it would be written to.
        left_s = min(max(assignment.timeout_s, 0.0), MAX_DURATION_S)
        message.timeout.CopyFrom(duration_to_wire(left_s))
    return message


def _timestamp(assignment: Assignment) -> Timestamp:
    since = assignment.created_at - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


# Outcomes


def error_from_wire(message: pb.ErrorInfo, limits: WireLimits = DEFAULT_WIRE_LIMITS) -> ErrorInfo:
    """Texts over their limits are cut; a category this version does not know is TEMPORARY."""
    return ErrorInfo(
        message=cut(message.message, limits.error_message_bytes) or "the worker gave no message",
        category=_CATEGORIES.get(message.category, ErrorCategory.TEMPORARY),
        code=cut(message.code, limits.id_characters),
        stack_trace=cut(message.stack_trace, limits.stack_trace_bytes),
        context=_context(message.context),
    )


def _context(entries: Mapping[str, str]) -> dict[str, str]:
    kept = sorted(entries.items())[:_CONTEXT_ENTRIES]
    return {cut(key, _CONTEXT_BYTES): cut(value, _CONTEXT_BYTES) for key, value in kept}


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
