"""Between the domain's jobs and those of `queue.proto`, for the server and for the client."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job, JobStats, Progress, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import OCTETS, ErrorCategory, ErrorInfo
from queue_operator.domain.retry import Backoff, BackoffStrategy, backoff_of
from queue_operator.domain.states import JobState
from queue_operator.domain.traces import trace_of
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1 import worker_pb2

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS: Final = 1_000_000_000
_MAX_SECONDS: Final = 315_576_000_000
"""What a Timestamp and a Duration can hold, which is more than a datetime can."""

E = TypeVar("E", bound=StrEnum)

_PLAIN: Final = (
    "id",
    "type",
    "payload",
    "content_type",
    "namespace",
    "correlation_id",
    "idempotency_key",
    "callback_url",
    "suspended",
    "waiting_for_dependencies",
    "result_content_type",
    "retry_count",
    "failure_count",
    "attempt",
    "lease_version",
    "transition",
    "assignee_id",
    "worker_name",
    "host",
    "reason",
    "cancel_reason",
    "spawned_by",
    "spawn_depth",
    "token",
)
"""Fields that are the same on both sides."""
_OPTIONAL: Final = ("max_attempts", "result")
_TIMES: Final = (
    "created_at",
    "scheduled_at",
    "eligible_at",
    "suspension_at",
    "started_at",
    "finalized_at",
    "updated_at",
    "failed_at",
    "last_retry_at",
    "assigned_at",
)
_DURATIONS: Final = (("delay_s", "delay"), ("timeout_s", "timeout"))


# Jobs


def job_to_wire(job: Job) -> pb.Job:
    """Every field. The job is one that `check_job` has passed, or one of the store."""
    message = pb.Job(
        tags=sorted(job.tags),
        priority=job.priority.value,
        depends_on=job.depends_on,
        dependency_type=job.dependency_mode.value,
        state=job.state.value,
        **{name: getattr(job, name) for name in _PLAIN},
        **{name: value for name in _OPTIONAL if (value := getattr(job, name)) is not None},
    )
    for name in _TIMES:
        if (at := getattr(job, name)) is not None:
            getattr(message, name).CopyFrom(time_to_wire(at))
    for name, wire_name in _DURATIONS:
        if (seconds := getattr(job, name)) is not None:
            getattr(message, wire_name).CopyFrom(duration_to_wire(seconds))
    _parts_to_wire(job, message)
    return message


def _parts_to_wire(job: Job, message: pb.Job) -> None:
    if job.traceparent:
        message.traceparent = job.traceparent
        message.tracestate = job.tracestate
    if (backoff := job.backoff) is not None:
        message.backoff.CopyFrom(_backoff_to_wire(backoff))
    if (resource := job.resource) is not None:
        message.resource.cluster_uid = resource.cluster_uid
        message.resource.uid = resource.uid
        message.resource.name = resource.name
        message.resource.generation = resource.generation
    if (error := job.error) is not None:
        message.error.CopyFrom(_error_to_wire(error))
    if (progress := job.progress) is not None:
        message.progress.percent = progress.percent
        message.progress.message = progress.message
        message.progress.updated_at.CopyFrom(time_to_wire(progress.updated_at))


def job_from_wire(message: pb.Job, *, namespace: str = "", field: str = "") -> Job:
    """The job of a message; one without a namespace is of `namespace`. Sizes are not checked.

    Raises InvalidArgument for what no Job can hold, under its name after `field`.
    """
    values: dict[str, Any] = {name: getattr(message, name) for name in _PLAIN}
    values["namespace"] = message.namespace or namespace
    for name in ("content_type", "result_content_type"):
        values[name] = getattr(message, name) or OCTETS
    values |= {n: getattr(message, n) for n in _OPTIONAL if message.HasField(n)}
    try:
        values |= {n: time_from_wire(n, at) for n in _TIMES if (at := _part(message, n))}
        values |= {
            name: seconds_from_wire(wire_name, length)
            for name, wire_name in _DURATIONS
            if (length := _part(message, wire_name)) is not None
        }
        return Job(
            tags=frozenset(message.tags),
            priority=_choice("priority", message.priority, Priority, Priority.NORMAL),
            depends_on=tuple(message.depends_on),
            dependency_mode=_choice(
                "dependency_type", message.dependency_type, DependencyMode, DependencyMode.AFTER
            ),
            state=_choice("state", message.state, JobState, JobState.INITIAL_PENDING),
            **values,
            **_parts_from_wire(message),
        )
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}{error.field}", error.reason) from None


def _part(message: Message, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _parts_from_wire(message: pb.Job) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if message.traceparent:
        trace = trace_of(message.traceparent, message.tracestate)
        parts |= {"traceparent": trace.parent, "tracestate": trace.state}
    if message.HasField("backoff"):
        parts["backoff"] = _backoff_from_wire(message.backoff)
    if message.HasField("resource"):
        of = message.resource
        parts["resource"] = ResourceRef(of.cluster_uid, of.uid, of.name, of.generation or 1)
    if message.HasField("error"):
        parts["error"] = _error_from_wire(message.error)
    if message.HasField("progress"):
        at = time_from_wire("progress.updated_at", message.progress.updated_at)
        parts["progress"] = Progress(message.progress.percent, message.progress.message, at)
    return parts


def _choice(field: str, text: str, choices: type[E], absent: E) -> E:
    if not text:
        return absent
    try:
        return choices(text)
    except ValueError:
        raise InvalidArgument(field, f"must be one of {', '.join(choices)}") from None


def _backoff_to_wire(backoff: Backoff) -> pb.Backoff:
    return pb.Backoff(
        strategy=backoff.strategy.value,
        initial_delay=duration_to_wire(backoff.initial_delay_s),
        max_delay=duration_to_wire(backoff.max_delay_s),
        multiplier=backoff.multiplier,
        delays=[duration_to_wire(delay) for delay in backoff.delays_s],
    )


def _backoff_from_wire(message: pb.Backoff) -> Backoff:
    """What the message leaves out is as usual for its strategy."""
    delays = {
        f"{name}_s": seconds_from_wire(f"backoff.{name}", length)
        for name in ("initial_delay", "max_delay")
        if (length := _part(message, name)) is not None
    }
    strategy = _choice(
        "backoff.strategy", message.strategy, BackoffStrategy, BackoffStrategy.EXPONENTIAL
    )
    return backoff_of(
        strategy,
        multiplier=message.multiplier or None,
        delays_s=tuple(
            seconds_from_wire(f"backoff.delays[{place}]", delay)
            for place, delay in enumerate(message.delays)
        ),
        **delays,
    )


_CATEGORIES: Final = {
    ErrorCategory.TEMPORARY: worker_pb2.ERROR_CATEGORY_TEMPORARY,
    ErrorCategory.PERMANENT: worker_pb2.ERROR_CATEGORY_PERMANENT,
    ErrorCategory.TIMEOUT: worker_pb2.ERROR_CATEGORY_TIMEOUT,
    ErrorCategory.SYSTEM: worker_pb2.ERROR_CATEGORY_SYSTEM,
}
_CATEGORY_OF: Final = {number: category for category, number in _CATEGORIES.items()}


def _error_to_wire(error: ErrorInfo) -> worker_pb2.ErrorInfo:
    return worker_pb2.ErrorInfo(
        category=_CATEGORIES[error.category],
        code=error.code,
        message=error.message,
        stack_trace=error.stack_trace,
        context=[
            worker_pb2.ContextEntry(key=key, value=value) for key, value in error.context.items()
        ],
    )


def _error_from_wire(message: worker_pb2.ErrorInfo) -> ErrorInfo:
    return ErrorInfo(
        message=message.message,
        category=_CATEGORY_OF.get(message.category, ErrorCategory.TEMPORARY),
        code=message.code,
        stack_trace=message.stack_trace,
        context={entry.key: entry.value for entry in message.context},
    )


# Statistics

_COUNTS: Final = (
    "total_jobs",
    "pending_jobs",
    "running_jobs",
    "completed_jobs",
    "stopped_jobs",
    "failed_jobs",
    "total_retries",
)


def stats_to_wire(stats: JobStats) -> pb.JobStats:
    return pb.JobStats(
        tags=sorted(stats.tags),
        by_state={state.value: count for state, count in stats.by_state.items()},
        **{name: getattr(stats, name) for name in _COUNTS},
    )


def stats_from_wire(message: pb.JobStats) -> JobStats:
    return JobStats(
        tags=frozenset(message.tags),
        by_state={state: message.by_state.get(state.value, 0) for state in JobState},
        **{name: getattr(message, name) for name in _COUNTS},
    )


# Times


def time_to_wire(at: datetime) -> Timestamp:
    since = at - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def time_from_wire(field: str, message: Timestamp) -> datetime:
    """Raises InvalidArgument for what is outside of the calendar."""
    try:
        since = timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
        return _EPOCH + since
    except OverflowError:
        raise InvalidArgument(field, "must be within the years 2 to 9998, in UTC") from None


def duration_to_wire(seconds: float) -> Duration:
    whole = int(seconds)
    # The fraction alone: a century in nanoseconds is more than a float can count.
    carry, nanos = divmod(round((seconds - whole) * _NANOS), _NANOS)
    return Duration(seconds=whole + carry, nanos=nanos)


def seconds_from_wire(field: str, message: Duration) -> float:
    """Raises InvalidArgument for what no Duration may hold; its sign is not checked."""
    if abs(message.seconds) > _MAX_SECONDS or abs(message.nanos) >= _NANOS:
        raise InvalidArgument(field, "is not a duration")
    # One division of whole numbers gives back the very float that was sent.
    return (message.seconds * _NANOS + message.nanos) / _NANOS


def jobs_from_wire(messages: Iterable[pb.Job], *, namespace: str = "") -> list[Job]:
    """Raises InvalidArgument naming the job, as `jobs[3].priority`."""
    return [
        job_from_wire(message, namespace=namespace, field=f"jobs[{place}].")
        for place, message in enumerate(messages)
    ]
