"""From jobs to the shapes of the API."""

import base64
from datetime import datetime, timedelta
from typing import Any

from queue_operator.api import documents, schemas
from queue_operator.domain import tags, views
from queue_operator.domain.job import Job, JobStats
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.states import SLOT_HOLDING, JobState, is_terminal


def submission_result(
    job: Job, created_at: datetime | None, now: datetime
) -> schemas.SubmissionResult:
    """The answer for a job that was stored. `created_at` None: it could not be read back."""
    scheduled_for = job.eligible_at or _due(job, created_at)
    delayed = scheduled_for is not None and scheduled_for > now
    state = views.phase(job, now)
    if state is views.Phase.SCHEDULED and delayed:
        state = views.Phase.DELAYED
    return schemas.SubmissionResult(
        job_id=job.id,
        status=schemas.SubmissionStatus.ACCEPTED,
        state=state,
        created_at=created_at,
        scheduled_for=scheduled_for,
    )


def _due(job: Job, created_at: datetime | None) -> datetime | None:
    if created_at is None:
        return job.scheduled_at
    delayed = created_at + timedelta(seconds=job.delay_s or 0)
    return delayed if job.scheduled_at is None else max(delayed, job.scheduled_at)


def job_status(job: Job, now: datetime, *, include_result: bool) -> schemas.JobStatus:
    """The job as the outside sees it at `now`."""
    fields: dict[str, Any] = {}
    if job.progress is not None:
        progress = job.progress
        fields["progress"] = schemas.ProgressInfo(
            percent=progress.percent, message=progress.message, updated_at=progress.updated_at
        )
    if include_result and (result := job_result(job)) is not None:
        fields["result"] = result
    return schemas.JobStatus(
        job_id=job.id,
        namespace=job.namespace,
        type=job.type,
        state=views.phase(job, now),
        attempt=job.attempt,
        cancel_requested=job.state is JobState.CANCELLING,
        reason=job.cancel_reason or job.reason,
        created_at=job.created_at,
        updated_at=job.updated_at,
        scheduled_for=job.eligible_at,
        started_at=job.started_at,
        completed_at=job.finalized_at,
        priority=job.priority,
        tags=tags.to_map(job.tags),
        correlation_id=job.correlation_id,
        **fields,
    )


def job_result(job: Job) -> schemas.JobResult | None:
    """How the job ended; None while it has not, or when it was cancelled without a word."""
    if not is_terminal(job.state):
        return None
    fields: dict[str, Any] = {}
    if job.state is JobState.COMPLETED:
        fields = {"status": "SUCCESS", **_output(job)}
    elif job.error is not None:
        fields = {"status": "FAILURE", "error": _error(job.error)}
    else:
        return None
    return schemas.JobResult(**fields, duration_ms=_duration_ms(job), attempt=job.attempt)


def queue_stats(stats: JobStats) -> schemas.QueueStats:
    return schemas.QueueStats(
        running=sum(stats.by_state.get(state, 0) for state in SLOT_HOLDING),
        total=stats.total_jobs,
        total_retries=stats.total_retries,
        counts={state: stats.by_state.get(state, 0) for state in JobState},
    )


def _output(job: Job) -> dict[str, Any]:
    raw = job.result or b""
    if job.result_content_type == documents.JSON_TYPE:
        try:
            return {"output": documents.decode(raw)}
        except ValueError:
            pass  # A handler's bytes that only claim to be JSON still come out, as bytes.
    return {"output_base64": base64.b64encode(raw).decode("ascii")}


def _error(error: ErrorInfo) -> schemas.ErrorInfo:
    fields = {"stack_trace": error.stack_trace} if error.stack_trace else {}
    return schemas.ErrorInfo(
        category=error.category, code=error.code, message=error.message, **fields
    )


def _duration_ms(job: Job) -> int | None:
    if job.assigned_at is None or job.finalized_at is None:
        return None
    return max(0, (job.finalized_at - job.assigned_at) // timedelta(milliseconds=1))
