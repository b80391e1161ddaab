"""What a handler says of a child that it spawns, as the server takes it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Final, TypedDict

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff
from queue_operator.domain.tags import from_map
from queue_operator.domain.validation import check_bytes, check_time
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.content import kind_of
from queue_operator.worker.durations import Duration, seconds_of
from queue_operator.worker.errors import PermanentError
from queue_operator.worker.values import write_value

_US_PER_S: Final = 1_000_000

Tags = Mapping[str, str] | Iterable[str]
"""As a map, or as the strings `key=value` and bare ones."""


class ChildOptions(TypedDict, total=False):
    """What a submission may say beside its type and payload. What is left out, or None, is
    decided by the server: an id is made, the correlation id is the parent's, attempts and
    timeout are those of the handler's registration.
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
    depends_on: Iterable[str]
    dependency_mode: DependencyMode | str | None


_OPTIONS: Final = tuple(ChildOptions.__annotations__)
_TEXTS: Final = ("job_id", "priority", "correlation_id", "idempotency_key", "dependency_mode")


def child_job(
    type_: str, payload: object, options: ChildOptions, payload_bytes: int
) -> wire.ChildJob:
    """Raises InvalidArgument naming what cannot be sent; the server looks at the rest."""
    _check_names(options)
    body, content_type = _payload(payload)
    check_bytes("payload", body, payload_bytes)
    job = wire.ChildJob(type=_text("type", type_), payload=body, content_type=content_type)
    for name in _TEXTS:
        text = options.get(name)
        if text is not None:
            setattr(job, name, _text(name, text))
    tags = options.get("tags") or ()
    given = from_map(tags) if isinstance(tags, Mapping) else tags
    job.tags.extend(sorted(_text("tags", tag) for tag in given))
    job.depends_on.extend(_text("depends_on", name) for name in options.get("depends_on") or ())
    _set_times(job, options)
    if (attempts := options.get("max_attempts")) is not None:
        job.max_attempts = _count("max_attempts", attempts)
    if (backoff := options.get("backoff")) is not None:
        _set_backoff(job.backoff, backoff)
    return job


def _check_names(options: Mapping[str, object]) -> None:
    for name in options:
        if name not in _OPTIONS:
            close = get_close_matches(name, _OPTIONS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(_OPTIONS)}"
            raise InvalidArgument(name, f"is no option of a child job; {hint}")


def _set_times(job: wire.ChildJob, options: ChildOptions) -> None:
    if (delay := options.get("delay")) is not None:
        job.delay.FromMicroseconds(_microseconds("delay", delay))
    if (timeout := options.get("timeout")) is not None:
        job.timeout.FromMicroseconds(_microseconds("timeout", timeout))
    if (scheduled_at := options.get("scheduled_at")) is not None:
        check_time("scheduled_at", scheduled_at)
        job.scheduled_at.FromDatetime(scheduled_at)


def _set_backoff(message: wire.ChildBackoff, backoff: Backoff) -> None:
    if not isinstance(backoff, Backoff):
        raise InvalidArgument("backoff", f"must be a Backoff, not {type(backoff).__name__}")
    message.strategy = backoff.strategy
    message.initial_delay.FromMicroseconds(_microseconds("backoff", backoff.initial_delay_s))
    message.max_delay.FromMicroseconds(_microseconds("backoff", backoff.max_delay_s))
    message.multiplier = backoff.multiplier
    for delay in backoff.delays_s:
        message.delays.add().FromMicroseconds(_microseconds("backoff", delay))


def _payload(payload: object) -> tuple[bytes, str]:
    """As a handler's result is written: JSON of values and models, bytes as they are."""
    try:
        return write_value(payload)
    except PermanentError:
        raise InvalidArgument(
            "payload", f"{kind_of(payload)} is not JSON that can be stored"
        ) from None


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(field, f"must be a string, not {type(value).__name__}")
    return value


def _count(field: str, value: object) -> int:
    # 0 would say that nothing was given.
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise InvalidArgument(field, f"must be a whole number above 0, not {value!r}")
    return value


def _microseconds(field: str, duration: Duration) -> int:
    try:
        seconds = seconds_of(duration)
        return round(seconds * _US_PER_S)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            field, f"must be seconds, a timedelta or ISO 8601 text, not {duration!r}"
        ) from None
