"""How a state is shown to others: the nine phases of `external-api.md`, the four of
`queue-semantics.md`.
"""

from datetime import datetime
from enum import StrEnum

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState


class Phase(StrEnum):
    """The nine lifecycle states of `external-api.md`."""

    PENDING = "PENDING"
    DELAYED = "DELAYED"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"
    CANCELLED = "CANCELLED"


class Semantic(StrEnum):
    """The four states of `queue-semantics.md`."""

    READY = "Ready"
    IN_FLIGHT = "InFlight"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


SEMANTIC: dict[JobState, Semantic] = {
    JobState.INITIAL_PENDING: Semantic.READY,
    JobState.FAILED_RETRY: Semantic.READY,
    JobState.UNKNOWN_RETRY: Semantic.READY,
    JobState.RUNNING: Semantic.IN_FLIGHT,
    JobState.CANCELLING: Semantic.IN_FLIGHT,
    JobState.COMPLETED: Semantic.SUCCEEDED,
    JobState.DEAD_LETTER: Semantic.FAILED,
    JobState.STOPPED: Semantic.FAILED,
    JobState.UNSCHEDULED: Semantic.FAILED,
    JobState.UNKNOWN_STOPPED: Semantic.FAILED,
}

PHASE: dict[JobState, Phase] = {
    JobState.INITIAL_PENDING: Phase.SCHEDULED,
    JobState.FAILED_RETRY: Phase.RETRYING,
    JobState.UNKNOWN_RETRY: Phase.RETRYING,
    JobState.RUNNING: Phase.RUNNING,
    JobState.CANCELLING: Phase.RUNNING,
    JobState.COMPLETED: Phase.COMPLETED,
    JobState.DEAD_LETTER: Phase.DEAD_LETTER,
    JobState.STOPPED: Phase.CANCELLED,
    JobState.UNSCHEDULED: Phase.CANCELLED,
    JobState.UNKNOWN_STOPPED: Phase.CANCELLED,
}
"""The phase by state alone; `phase` refines the three that depend on more."""


def phase(job: Job, now: datetime) -> Phase:
    """The phase of `job` as seen at `now` (the database's clock, UTC)."""
    if job.state is JobState.INITIAL_PENDING:
        if job.waiting_for_dependencies:
            return Phase.PENDING
        if job.eligible_at is not None and job.eligible_at > now:
            return Phase.DELAYED
    permanent = job.error is not None and job.error.category is ErrorCategory.PERMANENT
    if job.state is JobState.DEAD_LETTER and permanent:
        return Phase.FAILED
    return PHASE[job.state]
