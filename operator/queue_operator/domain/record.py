"""What a claim, and a decided move, make of a job's record. For stores that keep it whole."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from queue_operator.domain.job import Assignment, Demand, Job, Submitted, TypeDefaults
from queue_operator.domain.ordering import order_time
from queue_operator.domain.outcome import OCTETS
from queue_operator.domain.retry import DEFAULT_BACKOFF, DEFAULT_MAX_ATTEMPTS
from queue_operator.domain.states import ELIGIBLE, Event, JobState
from queue_operator.domain.transition import REASON_WORKER_LOST, WORKER_LOST_AGAIN, Move

_SUSPECT: Final = frozenset({REASON_WORKER_LOST, WORKER_LOST_AGAIN.code})


def eligible_at(job: Job, now: datetime) -> datetime:
    """When a job that is submitted now may run, as far as time alone decides."""
    if job.delay_s is None and job.scheduled_at is None:
        return now
    return max(now, job.scheduled_at or now, now + timedelta(seconds=job.delay_s or 0.0))


def accepted(job: Job, now: datetime, *, waits: bool = False) -> Submitted:
    """The answer to a submission that was stored; `waits` for others."""
    return Submitted(
        job_id=job.id,
        created_at=job.created_at or now,
        eligible_at=eligible_at(job, now),
        waiting_for_dependencies=waits,
    )


def answered(job: Job, *, duplicate: bool) -> Submitted:
    """The answer to a submission that `job` stands for, as it is stored."""
    return Submitted(
        job_id=job.id,
        duplicate=duplicate,
        created_at=job.created_at,
        eligible_at=job.eligible_at,
        waiting_for_dependencies=job.waiting_for_dependencies,
        state=job.state,
        permanent=job.permanent,
    )


def submitted(job: Job, now: datetime) -> Job:
    """The record of a new job. What it was told to wait for is a time now."""
    return replace(
        job,
        created_at=job.created_at or now,
        delay_s=None,
        scheduled_at=None,
        eligible_at=eligible_at(job, now),
        updated_at=now,
        transition=1,
        suspension_at=now if job.suspended else None,
    )


def suspended(job: Job, on: bool, now: datetime) -> Job:
    """The record of a job that is suspended, or resumed; the same where it is so already. Who was
    resumed has not waited for a worker before.
    """
    if job.suspended is on:
        return job
    eligible_at = job.eligible_at
    if not on and job.state in ELIGIBLE and not job.waiting_for_dependencies:
        eligible_at = max(eligible_at or now, now)
    return replace(job, suspended=on, suspension_at=now, eligible_at=eligible_at)


def place(job: Job) -> datetime:
    """Where it stands in the order of claims; ties are in order of submission."""
    return order_time(job.created_at or datetime.min, job.last_retry_at, job.priority)


def is_used_up(job: Job) -> bool:
    """True when no attempt is left."""
    return bool(job.max_attempts) and job.attempt >= (job.max_attempts or 0)


def is_claimable(job: Job, now: datetime) -> bool:
    waits = job.waiting_for_dependencies or (job.eligible_at or now) > now
    return job.state in ELIGIBLE and not (waits or job.suspended or is_used_up(job))


def claimed(job: Job, demand: Demand, defaults: TypeDefaults, now: datetime) -> Job:
    """The record of a job that was given to `demand`; what its submitter left out is resolved."""
    if job.max_attempts == 0:
        bound = defaults.max_attempts or DEFAULT_MAX_ATTEMPTS
        job = replace(job, max_attempts=bound, backoff=job.backoff or DEFAULT_BACKOFF)
    return replace(
        job,
        state=JobState.RUNNING,
        timeout_s=defaults.timeout_s if job.timeout_s is None else job.timeout_s,
        attempt=job.attempt + 1,
        lease_version=job.lease_version + 1,
        transition=job.transition + 1,
        assignee_id=demand.assignee_id,
        worker_name=demand.worker_name,
        host=demand.host,
        assigned_at=now,
        started_at=job.started_at or now,
        updated_at=now,
    )


def assignment(
    job: Job,
    token: str,
    parent_result: tuple[bytes | None, str] | None = None,
    checkpoint: bytes | None = None,
) -> Assignment:
    """What the worker gets of a job that was just claimed."""
    result, content_type = parent_result or (None, "")
    return Assignment(
        job_id=job.id,
        namespace=job.namespace,
        type=job.type,
        payload=job.payload,
        content_type=job.content_type,
        tags=job.tags,
        attempt=job.attempt,
        token=token,
        assignee_id=job.assignee_id,
        created_at=job.created_at or datetime.min,
        correlation_id=job.correlation_id,
        priority=job.priority,
        timeout_s=job.timeout_s,
        eligible_at=job.eligible_at,
        assigned_at=job.assigned_at,
        parent_result=result,
        parent_content_type="" if result is None else content_type,
        checkpoint=checkpoint,
        retry_count=job.retry_count,
        last_retry_at=job.last_retry_at,
        started_at=job.started_at,
        alone=is_suspect("" if job.error is None else job.error.code),
        traceparent=job.traceparent,
        tracestate=job.tracestate,
    )


def is_suspect(code: str | None) -> bool:
    """The job's last attempts were lost with their workers, as its stored error says: it may be
    what ended them.
    """
    return code in _SUSPECT


def given(job: Job, move: Move, now: datetime) -> Job:
    """The record with the error and the result that came with a move."""
    if move.error is not None:
        job = replace(job, error=move.error, failed_at=now)
    if move.result is not None:
        return replace(job, result=move.result, result_content_type=move.result_content_type)
    if move.drops_result:
        return replace(job, result=None, result_content_type=OCTETS)
    return job


def moved(job: Job, move: Move, now: datetime) -> Job:
    """The record after any move but one to CANCELLING."""
    job = replace(
        given(job, move, now),
        state=move.after,
        updated_at=now,
        transition=job.transition + 1,
        retry_count=job.retry_count + move.counts_retry,
        failure_count=job.failure_count + move.counts_failure,
        last_retry_at=now if move.counts_retry else job.last_retry_at,
        attempt=0 if move.resets_attempts else job.attempt - move.returns_attempt,
        max_attempts=move.max_attempts or job.max_attempts,
        priority=move.priority or job.priority,
        progress=None,
        waiting_for_dependencies=False,
    )
    return _waiting(job, move, now) if move.waits else _ended(job, move, now)


def _waiting(job: Job, move: Move, now: datetime) -> Job:
    eligible_at = now + timedelta(seconds=move.delay_s)
    return replace(job, eligible_at=eligible_at, finalized_at=None, reason="", cancel_reason="")


def _ended(job: Job, move: Move, now: datetime) -> Job:
    kept = None if move.event is Event.COMPLETE else job.finalized_at
    reason = move.cancel_reason or job.cancel_reason
    return replace(job, finalized_at=kept or now, reason=move.reason, cancel_reason=reason)


def note_of(move: Move) -> str:
    """Why, for the history: what the event's own name does not say."""
    note = move.cancel_reason or move.reason
    return "" if note == move.event else note
