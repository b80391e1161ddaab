"""What the status of a custom resource tells of its job: bounded, however large the job is."""

from datetime import datetime
from typing import Final

from queue_operator.domain.job import Job, Progress, ResourceRef
from queue_operator.domain.outcome import OCTETS, ErrorCategory
from queue_operator.domain.states import JobState
from queue_operator.domain.values import value

SHOWN_MESSAGE: Final = 1024
"""Characters of a message that are shown; one more is read, to tell that there are more."""
SHOWN_RESULT_BYTES: Final = 1024


@value(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job without payload, tags and stack trace. `message` is that of the newest error, else why
    it was cancelled or ended. `result_head` is the beginning of a result of `result_bytes`.
    """

    id: str
    namespace: str
    resource: ResourceRef | None = None
    state: JobState = JobState.INITIAL_PENDING
    transition: int = 0
    attempt: int = 0
    max_attempts: int | None = None
    worker: str = ""
    created_at: datetime | None = None
    eligible_at: datetime | None = None
    waiting_for_dependencies: bool = False
    suspended: bool = False
    suspension_at: datetime | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    finalized_at: datetime | None = None
    error_category: ErrorCategory | None = None
    error_code: str = ""
    message: str = ""
    result_head: bytes | None = None
    result_bytes: int = 0
    result_content_type: str = OCTETS
    progress: Progress | None = None

    @property
    def permanent(self) -> bool:
        """Whether its newest failure was PERMANENT."""
        return self.error_category is ErrorCategory.PERMANENT


def show(job: Job) -> ShownJob:
    """Of a job that is at hand as a whole."""
    error = job.error
    return ShownJob(
        id=job.id,
        namespace=job.namespace,
        resource=job.resource,
        state=job.state,
        transition=job.transition,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        worker=job.worker_name or job.assignee_id,
        created_at=job.created_at,
        eligible_at=job.eligible_at,
        waiting_for_dependencies=job.waiting_for_dependencies,
        suspended=job.suspended,
        suspension_at=job.suspension_at,
        assigned_at=job.assigned_at,
        started_at=job.started_at,
        finalized_at=job.finalized_at,
        error_category=error.category if error else None,
        error_code=error.code if error else "",
        message=(job.error_message or job.cancel_reason or job.reason)[: SHOWN_MESSAGE + 1],
        result_head=None if job.result is None else job.result[:SHOWN_RESULT_BYTES],
        result_bytes=len(job.result or b""),
        result_content_type=job.result_content_type,
        progress=job.progress,
    )
