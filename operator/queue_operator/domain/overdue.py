"""What the sweeper does to a job whose lease, execution or cancel took too long."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import REASON_WORKER_LOST

CANCEL_TIMEOUT_S: Final = 30.0
TIMED_OUT: Final = ErrorInfo("the execution timeout passed", ErrorCategory.TIMEOUT, "TIMEOUT")
WORKER_LOST: Final = ErrorInfo(
    "the worker was lost on the last attempt", ErrorCategory.SYSTEM, REASON_WORKER_LOST
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of a leased job; None never comes. `cancel_at` is None once a cancel that is not
    forced was received.
    """

    expires_at: datetime | None
    deadline: datetime | None
    cancel_at: datetime | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a sweep goes by: since when sweeps go on after a gap, None if never was one, and before
    when a lease must have ended to be lost now; None: it may not be lost.
    """

    resumed_at: datetime | None
    ended_before: datetime | None

    def loses(self, expires_at: datetime | None) -> bool:
        if expires_at is None or self.ended_before is None:
            return False
        return expires_at < self.ended_before


def sweep_turn(
    swept_at: datetime, resumed_at: datetime | None, now: datetime, ttl: timedelta
) -> Turn:
    """After a gap without sweeps (an outage) workers get one TTL to renew; then the next sweep
    decides, however late it comes: what had ended at the sweep before had its time.
    """
    if now - swept_at > ttl:
        return Turn(now, swept_at)
    is_over = resumed_at is None or now - resumed_at >= ttl
    return Turn(resumed_at, now if is_over else None)


def overdue(
    job: Job, limits: Limits, now: datetime, ttl: timedelta, cancel_timeout: timedelta
) -> Outcome | None:
    """What is to happen to a leased job now, None when it is in time."""
    cancelling = job.state is JobState.CANCELLING
    ran_out = limits.deadline is not None and limits.deadline + ttl < now
    unanswered = limits.cancel_at is not None and limits.cancel_at + cancel_timeout < now
    if cancelling and (unanswered or ran_out):
        return Outcome(job.id, Event.MARK_UNKNOWN_STOPPED, namespace=job.namespace)
    if ran_out:
        return Outcome(job.id, Event.FAIL, namespace=job.namespace, error=TIMED_OUT)
    if limits.expires_at is not None and limits.expires_at < now:
        return Outcome(job.id, Event.LOSE, namespace=job.namespace)
    return None
