"""How a job looks in the status of its QueueJob. Pure: a job and a time in, a status out."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from queue_operator.crd.v1alpha1 import (
    MAX_MESSAGE,
    MAX_SUMMARY_BYTES,
    MAX_TAG,
    Condition,
    ConditionStatus,
    ConditionType,
    QueueJobStatus,
    ResourcePhase,
    ShownProgress,
)
from queue_operator.domain.errors import QueueError, QuotaExceeded
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import ELIGIBLE, TERMINAL, JobState, is_terminal
from queue_operator.domain.views import phase

FINAL_CONDITION: Final[dict[JobState, ConditionType]] = {
    state: ConditionType.CANCELLED for state in TERMINAL
} | {
    JobState.COMPLETED: ConditionType.COMPLETE,
    JobState.DEAD_LETTER: ConditionType.FAILED,
}
"""What a finished job's resource is true of: every way of being stopped is a cancellation."""

STALLED: Final = frozenset({JobState.DEAD_LETTER})
"""States in which somebody has to look; tools that wait then report a failure."""

_REASONS: Final[dict[JobState, str]] = {
    JobState.INITIAL_PENDING: "Waiting",
    JobState.RUNNING: "Running",
    JobState.CANCELLING: "CancelRequested",
    JobState.FAILED_RETRY: "Retrying",
    JobState.UNKNOWN_RETRY: "WorkerLost",
    JobState.COMPLETED: "Completed",
    JobState.DEAD_LETTER: "AttemptsExhausted",
    JobState.STOPPED: "Stopped",
    JobState.UNSCHEDULED: "CancelledBeforeStart",
    JobState.UNKNOWN_STOPPED: "StopUnconfirmed",
}
_ACCEPTED: Final = "Accepted"
_REFUSED: Final = "Refused"
OVER_QUOTA: Final = QuotaExceeded.__name__
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def status_of(job: ShownJob, now: datetime, generation: int = 0) -> QueueJobStatus:
    """The status for `job` as seen at `now`; `generation` is the newest spec seen, if newer
    than the one taken in.
    """
    observed = max(generation, job.resource.generation if job.resource else 0) or None
    finished = is_terminal(job.state)
    return QueueJobStatus(
        state=job.state,
        phase=ResourcePhase(phase(job, now)),
        finished=finished,
        observed_generation=observed,
        transition=job.transition,
        attempt=job.attempt,
        max_attempts=job.max_attempts or None,
        worker=job.worker or None,
        job_id=job.id,
        assigned_at=job.assigned_at,
        started_at=job.started_at,
        finalized_at=job.finalized_at,
        progress=_progress(job),
        reason=reason_of(job),
        message=_message(job) or None,
        result_summary=result_summary(job),
        gc_bucket=gc_bucket(job.finalized_at) if finished and job.finalized_at else None,
        conditions=_conditions(job, now, observed),
    )


def refused(error: QueueError, now: datetime, generation: int) -> QueueJobStatus:
    """The status of a resource whose spec no retry will make acceptable."""
    reason = _as_word(error.code) or _REFUSED
    given_up = _given_up(reason, _cut(error.message), now, generation, ConditionStatus.FALSE)
    return given_up.model_copy(update={"phase": ResourcePhase.REJECTED})


def job_deleted(now: datetime, generation: int) -> QueueJobStatus:
    """The status of a resource that stood for a job of somebody else, of which nothing is known any
    more.
    """
    message = "The job that has its idempotency key was deleted before its end was seen here"
    return _given_up("JobDeleted", message, now, generation, ConditionStatus.TRUE)


def _given_up(
    reason: str, message: str, now: datetime, generation: int, accepted: ConditionStatus
) -> QueueJobStatus:
    return QueueJobStatus(
        finished=True,
        observed_generation=generation,
        reason=reason,
        message=message,
        gc_bucket=gc_bucket(now),
        conditions=[
            Condition(
                type=kind,
                status=status,
                reason=reason,
                message=message,
                last_transition_time=now,
                observed_generation=generation,
            )
            for kind, status in (
                (ConditionType.ACCEPTED, accepted),
                (ConditionType.STALLED, ConditionStatus.TRUE),
            )
        ],
    )


def over_quota(error: QuotaExceeded, now: datetime, generation: int) -> QueueJobStatus:
    """The status of a resource that is taken in once its namespace has room."""
    message = _cut(
        f"the namespace is over its quota {error.limit}: {error.current} of {error.maximum} used; "
        "nothing is stored yet, and it is tried again until there is room"
    )
    accepted = Condition(
        type=ConditionType.ACCEPTED,
        status=ConditionStatus.FALSE,
        reason=OVER_QUOTA,
        message=message,
        last_transition_time=now,
        observed_generation=generation,
    )
    return QueueJobStatus(
        phase=ResourcePhase.PENDING,
        finished=False,
        observed_generation=generation,
        reason=OVER_QUOTA,
        message=message,
        conditions=[accepted],
    )


def tells_over_quota(body: Mapping[str, Any], generation: int) -> bool:
    """Whether the status of a resource says so already."""
    return any(
        condition.get("type") == ConditionType.ACCEPTED
        and condition.get("status") == ConditionStatus.FALSE
        and condition.get("reason") == OVER_QUOTA
        and condition.get("observedGeneration") == generation
        for condition in (body.get("status") or {}).get("conditions") or ()
    )


def _conditions(job: ShownJob, now: datetime, observed: int | None) -> list[Condition]:
    # The times come from the job, so that writing a status again changes nothing.
    since = job.created_at or now
    found = [
        Condition(
            type=ConditionType.ACCEPTED,
            status=ConditionStatus.TRUE,
            reason=_ACCEPTED,
            message="Stored as a job",
            last_transition_time=since,
            observed_generation=observed,
        )
    ]
    if (suspended := _suspended(job, observed)) is not None:
        found.append(suspended)
    final = [FINAL_CONDITION[job.state]] if is_terminal(job.state) else []
    stalled = [ConditionType.STALLED] if job.state in STALLED else []
    return found + [
        Condition(
            type=kind,
            status=ConditionStatus.TRUE,
            reason=reason_of(job),
            message=_message(job),
            last_transition_time=job.finalized_at or since,
            observed_generation=observed,
        )
        for kind in final + stalled
    ]


def _message(job: ShownJob) -> str:
    """What there is to say of the job: of one that completed, no error of an attempt before."""
    is_old = job.state is JobState.COMPLETED and job.error_category is not None
    return "" if is_old else _cut(job.message)


def _progress(job: ShownJob) -> ShownProgress | None:
    told = job.progress
    if told is None or job.state in ELIGIBLE or is_terminal(job.state):
        return None
    message = _cut(told.message) or None
    return ShownProgress(percent=told.percent, message=message, updated_at=told.updated_at)


def _suspended(job: ShownJob, observed: int | None) -> Condition | None:
    """None for a job that has ended, and for one that was never suspended, as most are not."""
    if job.suspension_at is None or is_terminal(job.state):
        return None
    told = ConditionStatus.FALSE, "JobResumed", "The job runs as soon as a worker is free"
    if job.suspended:
        message = "No attempt begins until spec.suspend is false"
        if job.state not in ELIGIBLE:
            message += "; the one that runs goes on"
        told = ConditionStatus.TRUE, "JobSuspended", message
    status, reason, message = told
    return Condition(
        type=ConditionType.SUSPENDED,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=job.suspension_at,
        observed_generation=observed,
    )


def reason_of(job: ShownJob) -> str:
    """One word for why the job is where it is."""
    if job.state is JobState.DEAD_LETTER:
        if job.error_category is ErrorCategory.PERMANENT:
            return _as_word(job.error_code) or "PermanentFailure"
        if job.error_category is ErrorCategory.TIMEOUT:
            return "TimedOut"
    if job.suspended and job.state in ELIGIBLE:
        return "Suspended"
    return _REASONS[job.state]


def result_summary(job: ShownJob) -> str | None:
    """The first KiB of a readable result, or what kind of bytes it is; None without one."""
    if job.result_head is None:
        return None
    text = _readable(job.result_head, job.result_content_type)
    if text is None:
        return f"{job.result_bytes} bytes of {job.result_content_type}"[:MAX_SUMMARY_BYTES]
    return text


def _readable(result: bytes, content_type: str) -> str | None:
    if not (content_type.startswith("text/") or "json" in content_type):
        return None
    cut = result[:MAX_SUMMARY_BYTES].decode("utf-8", "ignore")
    return None if "\x00" in cut else cut


def gc_bucket(finalized_at: datetime) -> str:
    """The hour (UTC), a value that a field selector can hold."""
    return finalized_at.astimezone(UTC).strftime("%Y%m%dT%H")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _as_word(code: str) -> str | None:
    """`RESULT_NOT_STORABLE` as `ResultNotStorable`; None when it is no identifier."""
    if len(code) > MAX_TAG or not _WORD.fullmatch(code):
        return None
    return (
        "".join(part[:1].upper() + part[1:].lower() for part in code.split("_"))
        if (code.isupper())
        else code.rstrip("_")
    )
