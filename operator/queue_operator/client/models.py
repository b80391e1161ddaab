"""What the client sends and gets. Answers may carry fields that a newer server added."""

import base64
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.retry import BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Received(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Backoff(_Sent):
    """How long to wait before a retry; `delays` for CUSTOM only."""

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    initial_delay: timedelta | None = None
    max_delay: timedelta | None = None
    multiplier: float | None = None
    delays: tuple[timedelta, ...] | None = None


class Submission(_Sent):
    """One job. `payload` is any JSON value; bytes go in `payload_bytes` instead.

    What is left out is decided by the server: an id is made, the job is NORMAL and runs
    at once, attempts and timeout are those of the handler's registration.
    """

    type: str
    payload: JsonValue = None
    payload_bytes: bytes | None = None
    job_id: str | None = None
    priority: Priority | None = None
    delay: timedelta | None = None
    scheduled_at: datetime | None = None
    timeout: timedelta | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    correlation_id: str | None = None
    tags: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_payload(self) -> Self:
        if self.payload_bytes is not None and self.payload is not None:
            raise ValueError("give payload or payload_bytes, not both")
        return self

    def document(self) -> dict[str, Any]:
        """The submission as the API takes it."""
        fields: dict[str, Any] = self.model_dump(
            mode="json", exclude_none=True, exclude={"payload", "payload_bytes"}
        )
        if self.payload_bytes is None:
            fields["payload"] = self.payload
        else:
            fields["payload_base64"] = base64.b64encode(self.payload_bytes).decode("ascii")
        return fields


class ErrorDetail(_Received):
    """One fault."""

    field: str = ""
    code: str = ""
    message: str = ""


class APIError(_Received):
    """The body of every answer that is not a success."""

    code: str
    message: str
    details: tuple[ErrorDetail, ...] = ()
    request_id: str = ""


class ItemError(_Received):
    """Why one job of a batch was rejected."""

    code: str
    message: str
    details: tuple[ErrorDetail, ...] = ()


class SubmissionResult(_Received):
    """What became of one submission; `error` is set when it was REJECTED."""

    job_id: str | None = None
    status: str
    state: Phase | None = None
    created_at: datetime | None = None
    scheduled_for: datetime | None = None
    error: ItemError | None = None


class BatchResult(_Received):
    """What became of a batch, in the order of the submissions."""

    total: int
    accepted: int
    rejected: int
    results: tuple[SubmissionResult, ...]


class ProgressInfo(_Received):
    percent: int
    message: str
    updated_at: datetime


class ErrorInfo(_Received):
    category: ErrorCategory
    code: str
    message: str
    stack_trace: str = ""


class JobResult(_Received):
    """How a job ended. `output` is a JSON value, `output_base64` bytes."""

    status: Literal["SUCCESS", "FAILURE"]
    output: JsonValue = None
    output_base64: str | None = None
    error: ErrorInfo | None = None
    duration_ms: int | None = None
    attempt: int

    @property
    def output_bytes(self) -> bytes | None:
        """The bytes of an output that is not JSON."""
        return None if self.output_base64 is None else base64.b64decode(self.output_base64)


class JobStatus(_Received):
    """One job as it was when the server answered."""

    job_id: str
    namespace: str
    type: str
    state: Phase
    attempt: int
    cancel_requested: bool = False
    reason: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    scheduled_for: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    progress: ProgressInfo | None = None
    result: JobResult | None = None
    priority: Priority
    tags: dict[str, str] = Field(default_factory=dict)
    correlation_id: str = ""


class CancellationResult(_Received):
    """`status`: CANCELLED, CANCEL_REQUESTED or ALREADY_COMPLETE."""

    job_id: str
    status: str
    previous_state: Phase
    message: str


class QueueStats(_Received):
    """Current counts of one namespace; `counts` by internal state."""

    running: int
    total: int
    total_retries: int
    counts: dict[JobState, int]
