"""What failed, and why."""

from datetime import UTC, datetime
from typing import Any, Final

from queue_operator.api import schemas
from queue_operator.api.views.jobs import milliseconds
from queue_operator.backends.protocol import Attempt, FailurePage, JobHistory
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import REASON_WORKER_LOST
from queue_operator.domain.views import Phase, phase

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

_RESULTS: Final = {
    Event.COMPLETE: schemas.AttemptResult.SUCCESS,
    Event.FAIL: schemas.AttemptResult.FAILURE,
    Event.EXHAUST: schemas.AttemptResult.FAILURE,
    Event.LOSE: schemas.AttemptResult.FAILURE,
}
"""All others end an attempt before it is through."""
_ENDS: Final = {
    Event.LOSE: (REASON_WORKER_LOST, "the worker was lost"),
    Event.HAND_BACK: (
        "HANDED_BACK",
        "the worker gave the job back: it shut down, or could not begin it",
    ),
}
"""Code and message of an attempt that ended without an error."""
_STOPPED: Final = ("CANCELLED", "the attempt was cancelled")
_UNKNOWN: Final = ("OUTCOME_UNKNOWN", "nobody can say how the attempt ended")
"""Whichever event led to it."""
_FINAL: Final = {one: one for one in (Phase.FAILED, Phase.DEAD_LETTER, Phase.RETRYING)}


def of_job(job: Job, history: JobHistory, *, with_attempts: bool) -> schemas.FailureDetails | None:
    """Its newest failure; None for a job that never failed."""
    failed = [one for one in history.attempts if one.error is not None]
    if not failed:
        return None
    fields = {"attempts": _attempts(history)} if with_attempts else {}
    newest = failed[-1]
    return schemas.FailureDetails(
        job_id=job.id,
        type=job.type,
        **_outcome(job),
        failure=_failure(newest, newest.error or ErrorInfo("")),
        **fields,
    )


def page(found: FailurePage) -> schemas.FailureSearchResult:
    """One page of a search."""
    return schemas.FailureSearchResult(
        failures=[_of_record(job) for job in found.jobs],
        total_count=found.total_count or 0,
        next_cursor=found.next_cursor or None,
        by_category=dict(found.by_category),
        by_code=dict(found.by_code),
        by_type=dict(found.by_type),
    )


def _state(job: Job) -> Phase:
    # Times matter to jobs alone that have not begun, and those have not failed.
    return phase(job, _EPOCH)


def _outcome(job: Job) -> dict[str, Any]:
    """What became of the job as a whole."""
    now = _state(job)
    # Those whose worker shut down, or that no worker ever saw, count neither as an attempt nor as
    # failed, but as retried.
    made = job.lease_version - (job.retry_count - job.failure_count)
    return {
        "state": now,
        "final_state": Phase.RETRYING if now is Phase.RUNNING else _FINAL.get(now),
        "total_attempts": max(job.attempt, made),
    }


def _of_record(job: Job) -> schemas.FailureDetails:
    at = job.failed_at or job.updated_at
    ran = None
    if job.assigned_at is not None and at is not None and at >= job.assigned_at:
        ran = milliseconds(job.assigned_at, at)
    # Else it was assigned again since: what the record tells of an assignment is of that one.
    newest = ran is not None
    return schemas.FailureDetails(
        job_id=job.id,
        type=job.type,
        **_outcome(job),
        failure=schemas.FailureInfo(
            # A retry may have set it to 0.
            attempt=(job.attempt or None) if newest else _failed_attempt(job),
            timestamp=at,
            duration_ms=ran,
            worker_id=_worker(job) if newest else None,
            host=_host(job) if newest else None,
            **_error(job.error or ErrorInfo("")),
        ),
    )


def _failed_attempt(job: Job) -> int | None:
    """The newest that failed, of a job that was assigned again; None where later ones may have
    been lost or counted anew.
    """
    each_told = job.lease_version == job.retry_count
    return job.attempt if each_told and job.attempt == job.failure_count else None


def _attempts(history: JobHistory) -> list[schemas.AttemptInfo]:
    # One that no worker ever saw was none.
    return [_attempt(one) for one in history.attempts if one.event != Event.RELEASE]


def _attempt(attempt: Attempt) -> schemas.AttemptInfo:
    result = _result(attempt)
    fields = {}
    if result not in (None, schemas.AttemptResult.SUCCESS):
        code, message = _end(attempt)
        error = attempt.error or ErrorInfo(message, ErrorCategory.SYSTEM, code)
        fields = {"failure": _failure(attempt, error)}
    return schemas.AttemptInfo(
        attempt=attempt.number,
        started_at=attempt.assigned_at,
        finished_at=attempt.ended_at,
        result=result,
        worker_id=_worker(attempt),
        host=_host(attempt),
        **fields,
    )


def _end(attempt: Attempt) -> tuple[str, str]:
    if attempt.state is JobState.UNKNOWN_STOPPED:
        return _UNKNOWN
    return _ENDS.get(Event(attempt.event or Event.LOSE), _STOPPED)


def _worker(one: Attempt | Job) -> str:
    return one.worker_name or one.assignee_id


def _host(one: Attempt | Job) -> str | None:
    return one.host or None


def _result(attempt: Attempt) -> schemas.AttemptResult | None:
    if attempt.event is None:
        return None
    if attempt.error is not None and attempt.error.category is ErrorCategory.TIMEOUT:
        return schemas.AttemptResult.TIMEOUT
    if attempt.state is JobState.UNKNOWN_STOPPED:
        return schemas.AttemptResult.FAILURE
    return _RESULTS.get(Event(attempt.event), schemas.AttemptResult.CANCELLED)


def _failure(attempt: Attempt, error: ErrorInfo) -> schemas.FailureInfo:
    ended = attempt.ended_at
    return schemas.FailureInfo(
        attempt=attempt.number,
        timestamp=ended,
        duration_ms=None if ended is None else milliseconds(attempt.assigned_at, ended),
        worker_id=_worker(attempt),
        host=attempt.host or None,
        **_error(error),
    )


def _error(error: ErrorInfo) -> dict[str, Any]:
    fields = {"stack_trace": error.stack_trace} if error.stack_trace else {}
    return {
        "category": error.category,
        "code": error.code,
        "message": error.message,
        "context": dict(error.context),
        **fields,
    }
