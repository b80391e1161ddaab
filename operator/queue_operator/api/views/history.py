"""What happened to a job, as it was seen then."""

from collections.abc import Iterator
from datetime import datetime

from queue_operator.api import schemas
from queue_operator.backends.protocol import JobHistory, TransitionRecord
from queue_operator.domain.job import Job
from queue_operator.domain.states import ELIGIBLE, Event, JobState
from queue_operator.domain.transition import PERMANENT_FAILURE
from queue_operator.domain.views import PHASE, Phase


def transitions(job: Job, history: JobHistory) -> list[schemas.StateTransition]:
    """All changes of the job's state, in order."""
    return list(_transitions(job, history))


def _transitions(job: Job, history: JobHistory) -> Iterator[schemas.StateTransition]:
    left: Phase | None = None
    due = _first_due(job, history)
    for record in history.transitions:
        entered = _entered(job, record, due)
        yield schemas.StateTransition(
            from_state=_left(job, record, left, due),
            to_state=entered,
            timestamp=record.at,
            reason=record.reason or record.event,
        )
        left = entered


def _first_due(job: Job, history: JobHistory) -> datetime | None:
    """What the job first waited for: retries change its own time. None where that is not known,
    as of attempts that an older release wrote.
    """
    first = history.attempts[0].eligible_at if history.attempts else None
    was_sent_back = any(one.before and one.after in ELIGIBLE for one in history.transitions)
    due = job.eligible_at if first is None and not was_sent_back else first
    # Then it waited for who resumed it, and not for a time.
    return None if due == job.suspension_at else due


def _entered(job: Job, record: TransitionRecord, due: datetime | None) -> Phase:
    if record.after is JobState.INITIAL_PENDING:
        return _waiting(job, record.at, due)
    if record.after is JobState.DEAD_LETTER and record.reason == PERMANENT_FAILURE:
        return Phase.FAILED
    return PHASE[record.after]


def _left(
    job: Job, record: TransitionRecord, left: Phase | None, due: datetime | None
) -> Phase | None:
    if record.before is JobState.INITIAL_PENDING and record.event != Event.SKIP:
        # Whatever it waited for when it came, it was due when it was claimed.
        claimed = record.event == Event.CLAIM
        return PHASE[record.before] if claimed else _waiting(job, record.at, due)
    return left


def _waiting(job: Job, at: datetime, due: datetime | None) -> Phase:
    if job.depends_on:
        return Phase.PENDING
    return Phase.DELAYED if due is not None and due > at else Phase.SCHEDULED
