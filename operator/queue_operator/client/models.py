"""What the client gets. Answers may carry fields that a newer server added."""

import base64
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState, is_terminal
from queue_operator.domain.views import PHASE, Phase

FINISHED: Final = frozenset({PHASE[state] for state in JobState if is_terminal(state)}) | {
    Phase.FAILED
}
"""The states that a job does not leave by itself."""


class Received(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ErrorDetail(Received):
    """One fault."""

    field: str = ""
    code: str = ""
    message: str = ""
    job_id: str | None = None
    state: str | None = None
    event: str | None = None


class QuotaError(Received):
    """Which limit, how much of it is used, and when there may be room; None for a batch that
    never fits as a whole.
    """

    limit: str
    current: int
    maximum: int
    retry_after: timedelta | None = None


class APIError(Received):
    """The body of every answer that is not a success; `quota` with QUOTA_EXCEEDED."""

    code: str
    message: str
    details: tuple[ErrorDetail, ...] = ()
    request_id: str = ""
    quota: QuotaError | None = None


class ItemError(Received):
    """Why one job of a batch was rejected; `quota` with QUOTA_EXCEEDED."""

    code: str
    message: str
    details: tuple[ErrorDetail, ...] = ()
    quota: QuotaError | None = None


class SubmissionResult(Received):
    """What became of one submission: ACCEPTED, DUPLICATE of the job `existing_job_id`, or
    REJECTED with an `error`.
    """

    job_id: str | None = None
    status: str
    state: Phase | None = None
    created_at: datetime | None = None
    scheduled_for: datetime | None = None
    existing_job_id: str | None = None
    error: ItemError | None = None


class BatchResult(Received):
    """What became of a batch, in the order of the submissions. Duplicates count as accepted."""

    total: int
    accepted: int
    rejected: int
    results: tuple[SubmissionResult, ...]


class ProgressInfo(Received):
    percent: int
    message: str
    updated_at: datetime


class ErrorInfo(Received):
    category: ErrorCategory
    code: str
    message: str
    stack_trace: str | None = None


class JobResult(Received):
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


class StateTransition(Received):
    """One change of a job's state; the first has no `from_state`."""

    from_state: Phase | None = None
    to_state: Phase
    timestamp: datetime
    reason: str = ""


class JobStatus(Received):
    """One job as it was when the server answered. With `include_payload` it has what it was
    submitted with: `payload`, or `payload_bytes` of one that is no JSON.
    """

    job_id: str
    namespace: str
    type: str
    state: Phase
    attempt: int
    cancel_requested: bool = False
    suspended: bool = False
    reason: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    scheduled_for: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    progress: ProgressInfo | None = None
    payload: JsonValue = None
    payload_base64: str | None = None
    result: JobResult | None = None
    history: tuple[StateTransition, ...] | None = None
    priority: Priority
    tags: dict[str, str] = Field(default_factory=dict)
    correlation_id: str = ""
    traceparent: str = ""
    callback_url: str = ""
    max_attempts: int | None = None
    timeout: timedelta | None = None
    worker: str = ""
    resource: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended; only a manual retry changes that."""
        return self.state in FINISHED

    @property
    def payload_bytes(self) -> bytes | None:
        """The payload of a job that was submitted with bytes."""
        return None if self.payload_base64 is None else base64.b64decode(self.payload_base64)


class JobSearchResult(Received):
    """A page of jobs. `total_count` is a lower bound unless `total_is_exact`."""

    jobs: tuple[JobStatus, ...]
    total_count: int | None = None
    total_is_exact: bool = True
    next_cursor: str | None = None
    has_more: bool = False


class SuspensionResult(Received):
    """A job that was suspended or resumed."""

    job_id: str
    state: Phase
    suspended: bool
    message: str = ""


class Pause(Received):
    """No job of the namespace, or of its `type`, starts."""

    namespace: str
    type: str = ""
    reason: str = ""
    by: str = ""
    since: datetime | None = None


class PauseList(Received):
    pauses: tuple[Pause, ...]


class ResumeResult(Received):
    """`resumed`: whether there was such a pause."""

    resumed: bool


class Parent(Received):
    """A job that another depends on, and how it ended; None while it has not."""

    job_id: str
    state: Phase | None = None


class JobExplanation(Received):
    """Why a job does not run. `position` counts the jobs before it, None unless it waits in
    line; `workers` the connected workers that would take it, `free_slots` what those have free.
    """

    job_id: str
    state: Phase
    reason: str
    message: str
    position: int | None = None
    position_is_exact: bool = True
    depends_on: tuple[Parent, ...] = ()
    paused: tuple[Pause, ...] = ()
    eligible_at: datetime | None = None
    workers: int = 0
    free_slots: int = 0


class FailureInfo(Received):
    """How one attempt failed, and where. In a search, a job that was assigned again since has no
    worker and no host, and no attempt where it is not known.
    """

    attempt: int | None = None
    timestamp: datetime | None = None
    duration_ms: int | None = None
    category: ErrorCategory
    code: str
    message: str
    stack_trace: str | None = None
    context: dict[str, str] = Field(default_factory=dict)
    worker_id: str | None = None
    host: str | None = None


class AttemptInfo(Received):
    """One run of a job: SUCCESS, FAILURE, TIMEOUT or CANCELLED; None while it runs."""

    attempt: int
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    worker_id: str = ""
    host: str | None = None
    failure: FailureInfo | None = None


class LogLine(Received):
    """One line of a handler, with what it gave beside the message."""

    at: datetime
    level: str
    message: str
    fields: dict[str, JsonValue] = Field(default_factory=dict)


class AttemptLog(Received):
    """The newest lines of one attempt; `dropped` are not among them. Where it is `continued`, those
    since the last ones were read.
    """

    attempt: int
    continued: bool = False
    dropped: int = 0
    lines: tuple[LogLine, ...] = ()


class JobLog(Received):
    """What a job logged, by attempt, the oldest first. `next_cursor` is where what comes next
    begins; "" where the server has none.
    """

    job_id: str
    attempts: tuple[AttemptLog, ...] = ()
    next_cursor: str = ""


class FailureDetails(Received):
    """What went wrong with a job."""

    job_id: str
    type: str
    state: Phase | None = None
    final_state: Phase | None = None
    total_attempts: int
    failure: FailureInfo
    attempts: tuple[AttemptInfo, ...] | None = None


class FailureSearchResult(Received):
    """A page of failed jobs, and how all that match spread over categories, codes and types."""

    failures: tuple[FailureDetails, ...]
    total_count: int
    next_cursor: str | None = None
    by_category: dict[str, int] = Field(default_factory=dict)
    by_code: dict[str, int] = Field(default_factory=dict)
    by_type: dict[str, int] = Field(default_factory=dict)


class CancellationResult(Received):
    """`status`: CANCELLED, CANCEL_REQUESTED or ALREADY_COMPLETE."""

    job_id: str
    status: str
    previous_state: Phase
    message: str


class RetryResult(Received):
    """`status`: QUEUED, or NOT_RETRIABLE with a `message` that says why and what to do."""

    job_id: str
    status: str
    new_state: Phase
    scheduled_for: datetime | None = None
    message: str | None = None


class JobError(Received):
    """Why one job could not be changed."""

    job_id: str
    code: str
    message: str


class BulkResult(Received):
    """What became of the jobs of a bulk request: `requested` were meant, `skipped` had no need
    or could not. `has_more`: call again, there are others. Of a dry run: what would become.
    """

    requested: int
    skipped: int
    failed: int
    errors: tuple[JobError, ...] = ()
    dry_run: bool = False
    has_more: bool = False

    @property
    def changed(self) -> int:
        """How many jobs were changed, of a dry run: would be."""
        return self.requested - self.skipped - self.failed


class BatchCancellationResult(BulkResult):
    cancelled: int

    @property
    def changed(self) -> int:
        return self.cancelled


class BatchRetryResult(BulkResult):
    """`not_retriable` says of those that were skipped why, and what to do."""

    queued: int
    not_retriable: tuple[JobError, ...] = ()

    @property
    def changed(self) -> int:
        return self.queued


class BatchDeletionResult(BulkResult):
    deleted: int

    @property
    def changed(self) -> int:
        return self.deleted


class LatencyStats(Received):
    """None where nothing was measured."""

    p50: timedelta | None = None
    p90: timedelta | None = None
    p99: timedelta | None = None
    max: timedelta | None = None


class Counts(Received):
    """`pending` and `running` now; the others, each a way to end, in the window."""

    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0


class QueueStats(Received):
    """One namespace: counts of now, and what happened between `since` and `until`. Rates are per
    second; `counts` are by internal state.
    """

    since: datetime
    until: datetime
    pending: int
    scheduled: int
    running: int
    delayed: int
    completed: int
    failed: int
    dead_letter: int
    submission_rate: float
    completion_rate: float
    failure_rate: float
    queue_latency: LatencyStats
    execution_time: LatencyStats
    by_type: dict[str, Counts] | None = None
    by_priority: dict[str, Counts] | None = None
    by_state: dict[str, Counts] | None = None
    total: int
    total_retries: int
    counts: dict[JobState, int]


class Cause(Received):
    """One thing that keeps jobs back: what was counted, and what to do next."""

    code: str
    level: str
    message: str
    types: tuple[str, ...] = ()
    evidence: dict[str, JsonValue] = Field(default_factory=dict)
    next_step: str = ""
    command: str = ""
    runbook: str = ""


class Verdict(Received):
    """How a namespace does, or one type in it. `level`: HEALTHY, BUSY, DEGRADED or STUCK."""

    namespace: str
    type: str | None = None
    at: datetime
    level: str
    sentence: str
    causes: tuple[Cause, ...] = ()
    due: int = 0
    running: int = 0
    later: int = 0
    workers: int = 0
    slots: int = 0
    busy: int = 0


class Worker(Received):
    """A connected worker; without `types` it handles any."""

    name: str
    session_id: str
    host: str = ""
    version: str = ""
    replica: str = ""
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    capacity: int = 0
    busy: int = 0
    draining: bool = False
    connected_at: datetime | None = None
    heartbeat_at: datetime | None = None


class LostWorker(Received):
    """A worker that went without a goodbye; without `types` it handled any."""

    state: str = "LOST"
    name: str
    session_id: str
    host: str = ""
    version: str = ""
    types: tuple[str, ...] = ()
    capacity: int = 0
    jobs: int = 0
    lost_at: datetime


class WorkerList(Received):
    workers: tuple[Worker, ...]
    lost: tuple[LostWorker, ...] = ()


class WaitingJob(Received):
    """A job that could run, and why it does not."""

    job: JobStatus
    why: JobExplanation


class WaitingList(Received):
    waiting: tuple[WaitingJob, ...]


class FailureCluster(Received):
    """Failures of one code whose messages are alike; `job_id` and `message` of the newest."""

    code: str
    category: ErrorCategory
    shape: str
    count: int
    newest_at: datetime | None = None
    job_id: str
    message: str = ""


class FailingType(Received):
    """A type of which attempts failed in the window."""

    type: str
    attempts_failed: int = 0
    completed: int = 0
    clusters: tuple[FailureCluster, ...] = ()


class FailingTypes(Received):
    """The worst first; `read` failures were put into clusters, unless `is_complete` not all."""

    since: datetime
    read: int = 0
    is_complete: bool = True
    types: tuple[FailingType, ...] = ()


class SeriesPoint(Received):
    """What happened from `begins_at` until the next point."""

    begins_at: datetime
    submitted: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    attempts_failed: int = 0
    queue_latency: LatencyStats
    execution_time: LatencyStats


class StatsSeries(Received):
    """Points `step` apart, none left out; the last one is not over."""

    until: datetime
    step: timedelta
    points: tuple[SeriesPoint, ...]


class JobRights(Received):
    """By the verbs of `queuejobs`."""

    get: bool = False
    list: bool = False
    create: bool = False
    update: bool = False
    delete: bool = False


class WorkerRights(Received):
    """By the verbs of `queueworkers`."""

    patch: bool = False


class Access(Received):
    """What the caller may do in a namespace."""

    name: str
    namespace: str
    namespaces: tuple[str, ...] = ()
    jobs: JobRights
    workers: WorkerRights
