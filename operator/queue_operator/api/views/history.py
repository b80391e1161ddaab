"""What happened to a job, as it was seen then."""

from collections.abc import Iterator
from datetime import datetime

from queue_operator.api import schemas
from queue_operator.backends.protocol import JobHistory, TransitionRecord
from queue_operator.domain.job import Job
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import PERMANENT_FAILURE
from queue_operator.domain.views import PHASE, Phase


def transitions(job: Job, history: JobHistory) -> list[schemas.StateTransition]:
    """All changes of the job's state, in order."""
    return list(_transitions(job, history))


def _transitions(job: Job, history: JobHistory) -> Iterator[schemas.StateTransition]:
    left: Phase | None = None
    for record in history.transitions:
        entered = _entered(job, record)
        yield schemas.StateTransition(
            from_state=_left(job, record, left),
            to_state=entered,
            timestamp=record.at,
            reason=record.reason or record.event,
        )
        left = entered


def _entered(job: Job, record: TransitionRecord) -> Phase:
    if record.after is JobState.INITIAL_PENDING:
        return _waiting(job, record.at)
    if record.after is JobState.DEAD_LETTER and record.reason == PERMANENT_FAILURE:
        return Phase.FAILED
    return PHASE[record.after]


def _left(job: Job, record: TransitionRecord, left: Phase | None) -> Phase | None:
    if record.before is JobState.INITIAL_PENDING and record.event != Event.SKIP:
        # Whatever it waited for when it came, it was due when it was claimed.
        return PHASE[record.before] if record.event == Event.CLAIM else _waiting(job, record.at)
    return left


def _waiting(job: Job, at: datetime) -> Phase:
    if job.depends_on:
        return Phase.PENDING
    # Once a job has been retried, the time it first waited for is not known any more.
    if not job.retry_count and job.eligible_at is not None and job.eligible_at > at:
        return Phase.DELAYED
    return Phase.SCHEDULED
