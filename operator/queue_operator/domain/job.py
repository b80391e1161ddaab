"""The job itself, what a claim hands out, and what statistics count."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import QueueError
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.retry import Backoff
from queue_operator.domain.states import JobState
from queue_operator.domain.values import value

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """The custom resource a job came from; `cluster_uid` is the uid of kube-system."""

    cluster_uid: str
    uid: str
    name: str
    generation: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """`ProgressInfo` of `external-api.md` section 2; `percent` is 0 to 100."""

    percent: int
    message: str
    updated_at: datetime


@value(frozen=True, slots=True, kw_only=True)
class Job:
    """`Job` of `queue-api.md`, with what `system.md` adds. Times are aware, UTC.

    To submit, fill the first block; the rest must stay at its defaults, and
    `created_at` None means the database's clock. `max_attempts`: None no bound, 0 not
    yet resolved (the first claim resolves it). `timeout_s` None: no limit. An
    `idempotency_key` is unique in its namespace while the job is stored; `depends_on` names
    jobs of the same namespace. `callback_url` is told of the job's end. One that is `suspended` is
    not claimed, whatever its state, until somebody resumes it. `traceparent` and `tracestate` name
    the span that its runs are linked to. `transition` counts the job's changes of state, from 1.
    `suspension_at` is when it was last suspended or resumed.
    `spawned_by` is the id of the job whose handler submitted this one, and `spawn_depth` how many
    such steps lie between it and a job that came from outside. `token` is the lease's, on a job
    that a stream or `dequeue_jobs` has brought, and else empty: with it, an outcome counts for
    this attempt only.
    """

    id: str
    type: str
    payload: bytes = b""
    content_type: str = "application/octet-stream"
    namespace: str = DEFAULT_NAMESPACE
    tags: frozenset[str] = frozenset()
    priority: Priority = Priority.NORMAL
    created_at: datetime | None = None
    delay_s: float | None = None
    scheduled_at: datetime | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    backoff: Backoff | None = None
    correlation_id: str = ""
    idempotency_key: str = ""
    depends_on: tuple[str, ...] = ()
    dependency_mode: DependencyMode = DependencyMode.AFTER
    resource: ResourceRef | None = None
    callback_url: str = ""
    suspended: bool = False
    traceparent: str = ""
    tracestate: str = ""

    state: JobState = JobState.INITIAL_PENDING
    eligible_at: datetime | None = None
    waiting_for_dependencies: bool = False
    suspension_at: datetime | None = None
    started_at: datetime | None = None
    finalized_at: datetime | None = None
    updated_at: datetime | None = None
    error: ErrorInfo | None = None
    failed_at: datetime | None = None
    result: bytes | None = None
    result_content_type: str = "application/octet-stream"
    retry_count: int = 0
    failure_count: int = 0
    last_retry_at: datetime | None = None
    attempt: int = 0
    lease_version: int = 0
    transition: int = 0
    assignee_id: str = ""
    worker_name: str = ""
    host: str = ""
    assigned_at: datetime | None = None
    reason: str = ""
    cancel_reason: str = ""
    progress: Progress | None = None
    spawned_by: str = ""
    spawn_depth: int = 0
    token: str = ""

    @property
    def error_message(self) -> str:
        return self.error.message if self.error else ""

    @property
    def permanent(self) -> bool:
        """Whether its newest failure was PERMANENT."""
        return self.error is not None and self.error.category is ErrorCategory.PERMANENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one stream asks of a claim: at most `limit` jobs of `namespace` that carry all
    `tags` and, unless `types` is empty, are of one of `types`.
    """

    assignee_id: str
    limit: int
    namespace: str = DEFAULT_NAMESPACE
    tags: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    worker_name: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDefaults:
    """What a handler's registration says about a job that left it out."""

    max_attempts: int | None = None
    timeout_s: float | None = None


class Assignment(NamedTuple):
    """A claimed job on its way to a worker. `timeout_s` is what is left of the execution
    timeout, None without one. `parent_result` is the output of a CHAIN job's last parent,
    `checkpoint` the newest one of earlier attempts. `alone`: it may end its worker, and shall take
    nobody with it.
    """

    job_id: str
    namespace: str
    type: str
    payload: bytes
    content_type: str
    tags: frozenset[str]
    attempt: int
    token: str
    assignee_id: str
    created_at: datetime
    correlation_id: str = ""
    priority: Priority = Priority.NORMAL
    timeout_s: float | None = None
    eligible_at: datetime | None = None
    assigned_at: datetime | None = None
    parent_result: bytes | None = None
    parent_content_type: str = ""
    checkpoint: bytes | None = None
    retry_count: int = 0
    last_retry_at: datetime | None = None
    started_at: datetime | None = None
    alone: bool = False
    traceparent: str = ""
    tracestate: str = ""


@value(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The answer to one submission of a batch.

    `job_id` is the job that stands for it: of a repeat under the same idempotency key
    (`duplicate`) the first job's, of a rejected submission (`error`) its own, not stored.
    The rest tells of that job as it stands now, in the words of `Job`; of a rejected submission,
    a repeated spawn, and a first job that is deleted meanwhile, nothing.
    """

    job_id: str
    duplicate: bool = False
    error: QueueError | None = None
    created_at: datetime | None = None
    eligible_at: datetime | None = None
    waiting_for_dependencies: bool = False
    state: JobState = JobState.INITIAL_PENDING
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A running job whose worker must be told to stop."""

    job_id: str
    namespace: str
    assignee_id: str
    token: str
    force: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Answer of `cancel_jobs`: ids that were cancelled (or are being), ids that are
    missing or terminal, and what must be told to workers.
    """

    cancelled_job_ids: tuple[str, ...] = ()
    unknown_job_ids: tuple[str, ...] = ()
    requests: tuple[CancelRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """`JobStats` of `queue-api.md`; `by_state` has all ten, zero included.

    `failed_jobs` are those that wait for another attempt (FAILED_RETRY, UNKNOWN_RETRY); what failed
    for good is in `stopped_jobs`, with what was stopped, cancelled or ended in DEAD_LETTER.
    """

    tags: frozenset[str] = frozenset()
    total_jobs: int = 0
    pending_jobs: int = 0
    running_jobs: int = 0
    completed_jobs: int = 0
    stopped_jobs: int = 0
    failed_jobs: int = 0
    total_retries: int = 0
    by_state: Mapping[JobState, int] = field(default_factory=dict)

    @classmethod
    def from_counts(
        cls, tags: frozenset[str], counts: Mapping[JobState, int], total_retries: int
    ) -> "JobStats":
        """Sums the ten counts into the six the specification names."""
        by_state = {state: counts.get(state, 0) for state in JobState}
        return cls(
            tags=tags,
            total_jobs=sum(by_state.values()),
            pending_jobs=by_state[JobState.INITIAL_PENDING],
            running_jobs=by_state[JobState.RUNNING],
            completed_jobs=by_state[JobState.COMPLETED],
            stopped_jobs=sum(
                by_state[s]
                for s in (
                    JobState.STOPPED,
                    JobState.UNSCHEDULED,
                    JobState.UNKNOWN_STOPPED,
                    JobState.DEAD_LETTER,
                )
            ),
            failed_jobs=by_state[JobState.FAILED_RETRY] + by_state[JobState.UNKNOWN_RETRY],
            total_retries=total_retries,
            by_state=by_state,
        )
