"""Jobs as they are now."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from queue_operator.api.schemas.base import Answer, NamespaceQuery
from queue_operator.api.schemas.pauses import Pause
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.views import Phase
from queue_operator.queue.explaining import WaitReason


class JobQuery(NamespaceQuery):
    """What a look at one job takes."""

    include_result: bool = Field(False, description="Include the result of a finished job.")
    include_history: bool = Field(False, description="Include all changes of state.")
    include_payload: bool = Field(False, description="Include what the job was submitted with.")


class ProgressInfo(Answer):
    percent: int
    message: str
    updated_at: datetime


class ErrorInfo(Answer):
    category: ErrorCategory
    code: str
    message: str
    stack_trace: str | None = None


class JobResult(Answer):
    """How a finished job ended. A success has `output` (JSON) or `output_base64` (bytes)."""

    status: Literal["SUCCESS", "FAILURE"]
    output: Any = None
    output_base64: str | None = None
    error: ErrorInfo | None = None
    duration_ms: int | None = Field(None, description="Null when it never started.")
    attempt: int


class StateTransition(Answer):
    """One change of state, as it was seen then."""

    from_state: Phase | None = Field(description="Null for the submission.")
    to_state: Phase
    timestamp: datetime
    reason: str


class JobStatus(Answer):
    """One job as it is now."""

    job_id: str
    namespace: str
    type: str
    state: Phase
    attempt: int = Field(description="Number of the current or last attempt; 0 before the first.")
    cancel_requested: bool = Field(description="A running job was asked to stop.")
    suspended: bool = Field(description="No attempt begins until somebody resumes the job.")
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
    payload: Any = Field(None, description="Only with include_payload, where it was given as JSON.")
    payload_base64: str | None = Field(
        None, description="Only with include_payload, where it was given as bytes."
    )
    result: JobResult | None = Field(None, description="Only with include_result.")
    history: list[StateTransition] | None = Field(None, description="Only with include_history.")
    priority: Priority
    tags: dict[str, str]
    correlation_id: str
    traceparent: str | None = Field(
        None,
        description="The span of its submission, as W3C Trace Context writes it; only where it "
        "had one. Each attempt is a trace of its own, linked to this span.",
    )
    callback_url: str | None = Field(
        None, description="Who is told whenever the job has ended; only where somebody is."
    )
    max_attempts: int | None = Field(
        None, description="Most attempts; absent where there is no bound, or none is known yet."
    )
    timeout: str | None = Field(
        None, description="Longest run of one attempt, as ISO 8601; absent where there is none."
    )
    worker: str | None = Field(
        None, description="Name of the worker of the current or last attempt; absent before one."
    )
    resource: str | None = Field(
        None, description="Name of the QueueJob that the job is of; absent where there is none."
    )


class Parent(Answer):
    """A job that another depends on."""

    job_id: str
    state: Phase | None = Field(description="How it ended; null while it has not.")


class JobExplanation(Answer):
    """Why a job does not run."""

    job_id: str
    state: Phase
    reason: WaitReason
    message: str
    position: int | None = Field(
        description="How many jobs are before it; null for a job that does not stand in line."
    )
    position_is_exact: bool = Field(description="False: at least so many.")
    depends_on: list[Parent]
    paused: list[Pause]
    eligible_at: datetime | None
    workers: int = Field(description="Connected workers that would take the job.")
    free_slots: int = Field(description="What those have free.")


class CancellationStatus(StrEnum):
    CANCELLED = "CANCELLED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    ALREADY_COMPLETE = "ALREADY_COMPLETE"


class CancellationResult(Answer):
    job_id: str
    status: CancellationStatus
    previous_state: Phase
    message: str


class SuspensionResult(Answer):
    """A job that was suspended or resumed."""

    job_id: str
    state: Phase
    suspended: bool
    message: str


class RetryStatus(StrEnum):
    QUEUED = "QUEUED"
    NOT_RETRIABLE = "NOT_RETRIABLE"


class RetryResult(Answer):
    job_id: str
    status: RetryStatus
    new_state: Phase = Field(description="As it is after the call.")
    scheduled_for: datetime | None = Field(description="When it may start, if it is queued.")
    message: str | None = Field(None, description="With NOT_RETRIABLE: why, and what to do.")
