"""What the client sends."""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    PlainSerializer,
    model_validator,
)

from queue_operator.backends.lookups import SearchOrder
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.durations import iso_text, microseconds_of
from queue_operator.domain.numbers import number, whole
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.retry import BackoffStrategy
from queue_operator.domain.views import Phase


def _length(value: object) -> timedelta:
    return timedelta(microseconds=min(microseconds_of(value), _MOST_US))


_MOST_US: Final = timedelta.max // timedelta(microseconds=1)

Length = Annotated[
    timedelta,
    BeforeValidator(_length),
    PlainSerializer(iso_text, return_type=str, when_used="json"),
]
"""A timedelta; seconds and texts such as "1h30m" and "PT5M" are read as the server reads them."""


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def document(self) -> dict[str, Any]:
        """What was given, as the API takes it."""
        fields: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        return fields


class Backoff(_Sent):
    """How long to wait before a retry; `delays` for CUSTOM only."""

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    initial_delay: Length | None = None
    max_delay: Length | None = None
    multiplier: Annotated[float, BeforeValidator(number)] | None = None
    delays: tuple[Length, ...] | None = None


class Submission(_Sent):
    """One job. `payload` is any JSON value, also None if that is what is given; bytes go in
    `payload_bytes` instead. One of the two is required.

    What is left out is decided by the server: an id is made, the job is NORMAL and runs
    at once, attempts and timeout are those of the handler's registration. An idempotency key
    that is left out is made by the client for each call.
    """

    type: str
    payload: JsonValue = None
    payload_bytes: bytes | None = None
    job_id: str | None = None
    priority: Priority | None = None
    delay: Length | None = None
    scheduled_at: datetime | None = None
    timeout: Length | None = None
    max_attempts: Annotated[int, BeforeValidator(whole)] | None = None
    backoff: Backoff | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    tags: dict[str, str] | None = None
    depends_on: tuple[str, ...] | None = None
    dependency_type: DependencyMode | None = None
    suspended: bool | None = None
    callback_url: str | None = None

    @model_validator(mode="after")
    def _one_payload(self) -> Self:
        if self.payload_bytes is not None and self.payload is not None:
            raise ValueError("give payload or payload_bytes, not both")
        if self.payload_bytes is None and "payload" not in self.model_fields_set:
            raise ValueError("give payload or payload_bytes; payload may be null")
        return self

    def document(self) -> dict[str, Any]:
        """The submission as the API takes it."""
        fields: dict[str, Any] = self.model_dump(
            mode="json", exclude_none=True, exclude={"payload", "payload_bytes"}
        )
        if self.tags is not None:
            # As they are: pydantic puts other characters for halves of some in the keys of a map.
            fields["tags"] = dict(self.tags)
        if self.payload_bytes is None:
            fields["payload"] = self.payload
        else:
            fields["payload_base64"] = base64.b64encode(self.payload_bytes).decode("ascii")
        return fields

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """A submission written as the API takes it. Raises ValueError for what is none."""
        fields = dict(document)
        if "payload_bytes" in fields:
            raise ValueError("payload_bytes: give bytes as base64, in payload_base64")
        if "payload_base64" in fields:
            if "payload" in fields:
                raise ValueError("payload: give payload or payload_base64, not both")
            fields["payload_bytes"] = _decoded(fields.pop("payload_base64"))
        return cls.model_validate(fields)


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("payload_base64: is not base64") from None


class _JobCriteria(_Sent):
    types: tuple[str, ...] = ()
    states: tuple[Phase, ...] = ()
    priorities: tuple[Priority, ...] = ()
    tags: dict[str, str] = {}
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None


class JobFilter(_JobCriteria):
    """Which jobs: those that meet all that is given. A list is met by any one of its items, tags
    by all of them. Where nothing is given, `all` must be said. At most `limit` of them, 1 to
    10,000, are changed, the oldest first unless `order` says so.
    """

    all: bool = False
    limit: int | None = None
    order: SearchOrder | None = None


class JobSearch(_JobCriteria):
    """A page of the jobs that meet all that is given, as JobFilter, newest first unless `order`
    says so. `limit` is 1 to 1000, 100 when left out. Counting the matches costs time: with
    `include_total=False` the answer has no `total_count`.
    """

    cursor: str | None = None
    limit: int | None = None
    order: SearchOrder | None = None
    include_total: bool | None = None


class TimeRange(_Sent):
    """Later than `after`, earlier than `before`."""

    after: datetime | None = None
    before: datetime | None = None


class _FailureCriteria(_Sent):
    states: tuple[Phase, ...] = ()
    failure_category: tuple[ErrorCategory, ...] = ()
    types: tuple[str, ...] = ()
    error_code: str | None = None
    time_range: TimeRange | None = None


class Pagination(_Sent):
    """`limit` is 1 to 1000, 100 when left out; of a change 1 to 10,000, without a cursor."""

    cursor: str | None = None
    limit: int | None = None


class FailureFilter(_FailureCriteria):
    """Which failed jobs, as JobFilter. `states` are among FAILED, DEAD_LETTER and RETRYING."""

    all: bool = False
    pagination: Pagination | None = None


class FailureSearch(_FailureCriteria):
    """A page of the failed jobs that meet all that is given, newest failure first."""

    pagination: Pagination = Pagination()
