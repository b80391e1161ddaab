"""How a state is shown to others: the nine phases of `external-api.md`, the four of
`queue-semantics.md`.
"""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from queue_operator.domain.job import Job, Submitted
from queue_operator.domain.shown import ShownJob
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
"""The phase by state alone; `phase` refines those of two states, which depend on more."""

_REFINED: dict[Phase, JobState] = {
    Phase.PENDING: JobState.INITIAL_PENDING,
    Phase.DELAYED: JobState.INITIAL_PENDING,
    Phase.SCHEDULED: JobState.INITIAL_PENDING,
    Phase.FAILED: JobState.DEAD_LETTER,
    Phase.DEAD_LETTER: JobState.DEAD_LETTER,
}


def states_of(phases: Collection[Phase]) -> frozenset[JobState]:
    """The states of jobs that may be seen in one of these phases."""
    plain = {state for state, phase in PHASE.items() if phase in phases}
    return frozenset(plain | {state for phase, state in _REFINED.items() if phase in phases})


def may_show(state: JobState) -> tuple[Phase, ...]:
    """The phases in which jobs of this state may be seen."""
    return tuple(phase for phase in Phase if state in states_of({phase}))


def refining(phases: Collection[Phase], states: Collection[JobState]) -> frozenset[Phase]:
    """Those of `phases` between which a job's state alone does not decide, if it is in one of
    `states`; none where that makes no difference.
    """
    asked = {phase: state for phase, state in _REFINED.items() if state in states}
    wanted = frozenset(phase for phase in asked if phase in phases)
    return wanted if len(wanted) < len(asked) else frozenset()


def phase(job: Job | ShownJob | Submitted, now: datetime) -> Phase:
    """The phase of `job` as seen at `now` (the database's clock, UTC)."""
    if job.state is JobState.INITIAL_PENDING:
        if job.waiting_for_dependencies:
            return Phase.PENDING
        if job.eligible_at is not None and job.eligible_at > now:
            return Phase.DELAYED
    if job.state is JobState.DEAD_LETTER and job.permanent:
        return Phase.FAILED
    return PHASE[job.state]
