"""The shapes of `external-api.md`, as far as the server serves them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from queue_operator.api.scalars import Duration, PositiveDuration, Timestamp
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.retry import DEFAULT_BACKOFF, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import MAX_ATTEMPTS_BOUND
from queue_operator.domain.views import Phase


class _Request(BaseModel):
    # A field this server does not know is refused, never ignored: the caller relies on it.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class BackoffConfig(_Request):
    """How long to wait before a retry."""

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    initial_delay: Duration | None = Field(
        None, description=f"Before the first retry; default {DEFAULT_BACKOFF.initial_delay_s:g} s."
    )
    max_delay: Duration | None = Field(
        None, description=f"Longest delay; default {DEFAULT_BACKOFF.max_delay_s:g} s."
    )
    multiplier: float = Field(
        DEFAULT_BACKOFF.multiplier, ge=1, le=1000, description="Growth for EXPONENTIAL."
    )
    delays: list[Duration] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ATTEMPTS_BOUND,
        description="For CUSTOM: the delay before each retry; the last repeats.",
    )


class JobSubmission(_Request):
    """One job. Exactly one of `payload` and `payload_base64` must be given."""

    job_id: str | None = Field(
        None, min_length=1, description="The caller's own id; default: a new UUIDv7."
    )
    type: str = Field(min_length=1, description="Job type: which handler runs it.")
    payload: Any = Field(None, description="Any JSON value; handlers get it as JSON.")
    payload_base64: str | None = Field(None, description="Bytes, passed on as they are.")

    priority: Priority = Priority.NORMAL
    delay: Duration | None = Field(None, description="Not before this long after submission.")
    scheduled_at: Timestamp | None = Field(None, description="Not before this time.")

    timeout: PositiveDuration | None = Field(None, description="Limit of one execution.")
    max_attempts: Annotated[StrictInt, Field(ge=1, le=MAX_ATTEMPTS_BOUND)] | None = Field(
        None, description="Default: the handler's registration, else 4."
    )
    backoff: BackoffConfig | None = None

    correlation_id: str | None = None
    tags: dict[str, str] | None = None


class BatchSubmission(_Request):
    """Up to 1000 jobs."""

    jobs: list[JobSubmission] = Field(min_length=1, max_length=1000)
    atomic: StrictBool = Field(True, description="All or nothing.")


class CancellationRequest(_Request):
    """Why a job is cancelled, and how hard."""

    reason: str = Field("", description="At most 1024 characters; the worker sees it too.")
    force: StrictBool = Field(False, description="Interrupt the handler of a running job.")


class NamespaceQuery(_Request):
    """What every operation takes."""

    namespace: str | None = Field(
        None, min_length=1, description="Default: the caller's own namespace."
    )


class JobQuery(NamespaceQuery):
    """What a look at one job takes."""

    include_result: bool = Field(False, description="Include the result of a finished job.")


class StatsQuery(NamespaceQuery):
    """What statistics take."""

    tag: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="Count only jobs with all of these tags (`key=value`)."
    )


class ErrorDetail(_Answer):
    """One fault."""

    field: str = Field(description="The field it is about; empty for the request as a whole.")
    code: str
    message: str


class APIError(_Answer):
    """The body of every answer that is not a success."""

    code: str
    message: str
    details: list[ErrorDetail]
    request_id: str


class ItemError(_Answer):
    """Why one job of a batch was rejected."""

    code: str
    message: str
    details: list[ErrorDetail]


class SubmissionStatus(StrEnum):
    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"


class SubmissionResult(_Answer):
    """What became of one submission."""

    job_id: str | None = Field(description="Null for a rejected job without an own id.")
    status: SubmissionStatus
    state: Phase | None = None
    created_at: datetime | None = Field(
        None, description="Null for a rejected job, or when the store failed right after."
    )
    scheduled_for: datetime | None = None
    error: ItemError | None = Field(None, description="Set when rejected.")


class BatchResult(_Answer):
    """What became of a batch; `results` in the order of the submissions."""

    total: int
    accepted: int
    rejected: int
    results: list[SubmissionResult]


class ProgressInfo(_Answer):
    percent: int
    message: str
    updated_at: datetime


class ErrorInfo(_Answer):
    category: ErrorCategory
    code: str
    message: str
    stack_trace: str | None = None


class JobResult(_Answer):
    """How a finished job ended. A success has `output` (JSON) or `output_base64` (bytes)."""

    status: Literal["SUCCESS", "FAILURE"]
    output: Any = None
    output_base64: str | None = None
    error: ErrorInfo | None = None
    duration_ms: int | None = Field(None, description="Null when it never started.")
    attempt: int


class JobStatus(_Answer):
    """One job as it is now."""

    job_id: str
    namespace: str
    type: str
    state: Phase
    attempt: int = Field(description="Number of the current or last attempt; 0 before the first.")
    cancel_requested: bool = Field(description="A running job was asked to stop.")
    reason: str = Field(
        description="What a cancel gave as its reason, else what ended the job, in one word; "
        "empty for other jobs."
    )
    created_at: datetime | None
    updated_at: datetime | None
    scheduled_for: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    progress: ProgressInfo | None = None
    result: JobResult | None = Field(None, description="Only with include_result.")
    priority: Priority
    tags: dict[str, str]
    correlation_id: str


class CancellationStatus(StrEnum):
    CANCELLED = "CANCELLED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    ALREADY_COMPLETE = "ALREADY_COMPLETE"


class CancellationResult(_Answer):
    job_id: str
    status: CancellationStatus
    previous_state: Phase
    message: str


class QueueStats(_Answer):
    """Current counts of one namespace."""

    running: int = Field(description="Executing, asked to stop included.")
    total: int
    total_retries: int
    counts: dict[JobState, int] = Field(description="Jobs by internal state, zero included.")
