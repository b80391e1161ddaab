"""What a handler says of a child that it spawns, as the server takes it."""

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, TypedDict

from queue_operator.client.requests import Backoff, Submission
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.ordering import Priority
from queue_operator.domain.tags import from_map
from queue_operator.domain.texts import kind_of
from queue_operator.domain.validation import check_bytes, check_text, check_time
from queue_operator.tracing.current import current
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.content import OCTETS
from queue_operator.worker.durations import Duration, length_of
from queue_operator.worker.values import write_document, write_payload

_US_PER_S: Final = 1_000_000

Tags = Mapping[str, str] | Iterable[str]
"""As a map, or as the strings `key=value` and bare ones."""


class ChildOptions(TypedDict, total=False):
    """What a submission may say beside its type and payload, in the words of all doors. What is
    left out, or None, is decided by the server: an id is made, the correlation id is the
    parent's, attempts and timeout are those of the handler's registration.
    """

    job_id: str | None
    tags: Tags | None
    priority: Priority | str | None
    delay: Duration | None
    scheduled_at: datetime | None
    timeout: Duration | None
    max_attempts: int | None
    backoff: Backoff | None
    correlation_id: str | None
    idempotency_key: str | None
    depends_on: Iterable[str] | None
    dependency_type: DependencyMode | str | None
    callback_url: str | None
    suspended: bool | None


_OPTIONS: Final = tuple(ChildOptions.__annotations__)
_TEXTS: Final = (
    "job_id",
    "priority",
    "correlation_id",
    "idempotency_key",
    "dependency_type",
    "callback_url",
)


def child_job(
    job: str | Submission, payload: object, options: ChildOptions, payload_bytes: int
) -> wire.ChildJob:
    """Of a type, its payload and options, or of a whole submission. Raises InvalidArgument naming
    what cannot be sent; the server looks at the rest.
    """
    if isinstance(job, Submission):
        if payload is not None or options:
            raise InvalidArgument("submission", "is whole: say in it what stands beside it")
        body, content_type = _own_payload(job)
        type_, options = job.type, _own_options(job)
    else:
        type_ = job
        body, content_type = write_payload(payload)
    return _child(type_, body, content_type, options, payload_bytes)


def _own_payload(submission: Submission) -> tuple[bytes, str]:
    if submission.payload_bytes is not None:
        return submission.payload_bytes, OCTETS
    return write_document("payload", submission.payload)


def _own_options(submission: Submission) -> ChildOptions:
    given: Any = {name: getattr(submission, name) for name in _OPTIONS}
    return given  # type: ignore[no-any-return]


def _child(
    type_: object, body: bytes, content_type: str, options: ChildOptions, payload_bytes: int
) -> wire.ChildJob:
    _check_names(options)
    check_bytes("payload", body, payload_bytes)
    job = wire.ChildJob(type=_text("type", type_), payload=body, content_type=content_type)
    for name in _TEXTS:
        text = options.get(name)
        if text is not None:
            setattr(job, name, _text(name, text))
    job.traceparent, job.tracestate = current()
    job.tags.extend(sorted(_tags(options.get("tags"))))
    job.depends_on.extend(_texts("depends_on", options.get("depends_on")))
    _set_times(job, options)
    if (attempts := options.get("max_attempts")) is not None:
        job.max_attempts = _count("max_attempts", attempts)
    if (backoff := options.get("backoff")) is not None:
        _set_backoff(job.backoff, backoff)
    if (suspended := options.get("suspended")) is not None:
        job.suspended = _flag("suspended", suspended)
    return job


def _check_names(options: Mapping[str, object]) -> None:
    for name in options:
        if name not in _OPTIONS:
            close = get_close_matches(name, _OPTIONS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(_OPTIONS)}"
            raise InvalidArgument(name, f"is no option of a job; {hint}")


def _set_times(job: wire.ChildJob, options: ChildOptions) -> None:
    if (delay := options.get("delay")) is not None:
        job.delay.FromMicroseconds(_microseconds("delay", delay))
    if (timeout := options.get("timeout")) is not None:
        job.timeout.FromMicroseconds(_microseconds("timeout", timeout))
    if (scheduled_at := options.get("scheduled_at")) is not None:
        check_time("scheduled_at", scheduled_at)
        job.scheduled_at.FromDatetime(scheduled_at)


def _set_backoff(message: wire.ChildBackoff, backoff: Backoff) -> None:
    """What is not said is not sent: the server knows what is usual."""
    if not isinstance(backoff, Backoff):
        raise InvalidArgument(
            "backoff", f"must be a queue_operator.worker.Backoff, not {kind_of(backoff)}"
        )
    message.strategy = backoff.strategy
    for name in ("initial_delay", "max_delay"):
        if (delay := getattr(backoff, name)) is not None:
            getattr(message, name).FromMicroseconds(_microseconds(f"backoff.{name}", delay))
    if backoff.multiplier is not None:
        message.multiplier = backoff.multiplier
    for delay in backoff.delays or ():
        message.delays.add().FromMicroseconds(_microseconds("backoff.delays", delay))


def _tags(given: object) -> Iterable[str]:
    if isinstance(given, Mapping):
        pairs = {_text("tags", key): _text(f"tags.{key}", item) for key, item in given.items()}
        return from_map(pairs)
    return _texts("tags", given)


def _texts(field: str, given: object) -> list[str]:
    # One text is a collection too, of its letters.
    if isinstance(given, str | bytes) or not isinstance(given, Iterable | None):
        raise InvalidArgument(field, f"must be a list of texts, not {given!r}")
    return [_text(field, one) for one in given or ()]


def _text(field: str, value: object) -> str:
    """How long it may be is the server's to say."""
    check_text(field, value, sys.maxsize, required=False)
    return str.__str__(value)


def _count(field: str, value: object) -> int:
    # 0 would say that nothing was given.
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise InvalidArgument(field, f"must be a whole number above 0, not {value!r}")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(field, f"must be True or False, not {value!r}")
    return value


def _microseconds(field: str, duration: Duration) -> int:
    return round(length_of(field, duration) * _US_PER_S)
