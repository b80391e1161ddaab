"""Jobs, and what became of submissions."""

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from queue_operator.api import documents, schemas
from queue_operator.domain import tags
from queue_operator.domain.durations import iso_text
from queue_operator.domain.job import Job, Submitted
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.states import JobState, is_terminal
from queue_operator.domain.views import Phase, phase


def submission_result(answer: Submitted, now: datetime) -> schemas.SubmissionResult:
    """What became of a submission that was stored, now or before."""
    fields: dict[str, Any] = {}
    status = schemas.SubmissionStatus.ACCEPTED
    if answer.duplicate:
        status = schemas.SubmissionStatus.DUPLICATE
        fields["existing_job_id"] = answer.job_id
    return schemas.SubmissionResult(
        job_id=answer.job_id,
        status=status,
        state=seen(answer, now),
        created_at=answer.created_at,
        scheduled_for=None if answer.waiting_for_dependencies else answer.eligible_at,
        **fields,
    )


class SubmissionResults:
    """The same for the jobs of a batch, as JSON has it. Most of them differ in nothing but the id:
    a model for each took longer than to store them.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._alike: dict[tuple[Any, ...], dict[str, Any]] = {}

    def plain(self, answer: Submitted) -> dict[str, Any]:
        """`submission_result` of one."""
        if answer.duplicate:
            return submission_result(answer, self._now).plain()
        rest = (
            answer.created_at,
            answer.eligible_at,
            answer.waiting_for_dependencies,
            answer.state,
            answer.permanent,
        )
        alike = self._alike.get(rest)
        if alike is None:
            alike = self._alike[rest] = submission_result(answer, self._now).plain()
        return {**alike, "job_id": answer.job_id}


def seen(job: Job | Submitted, now: datetime) -> Phase:
    """The phase at `now`, by a clock that may be behind the database's."""
    created_at = job.created_at
    return phase(job, now if created_at is None else max(now, created_at))


def job_status(
    job: Job,
    now: datetime,
    *,
    include_result: bool = False,
    include_payload: bool = False,
    history: Sequence[schemas.StateTransition] | None = None,
) -> schemas.JobStatus:
    """The job as the outside sees it at `now`."""
    fields: dict[str, Any] = {} if history is None else {"history": history}
    fields |= {name: told for name, told in _where_given(job).items() if told}
    if job.progress is not None:
        progress = job.progress
        fields["progress"] = schemas.ProgressInfo(
            percent=progress.percent, message=progress.message, updated_at=progress.updated_at
        )
    if include_result and (result := job_result(job)) is not None:
        fields["result"] = result
    if include_payload:
        fields |= _content("payload", job.payload, job.content_type)
    return schemas.JobStatus(
        job_id=job.id,
        namespace=job.namespace,
        type=job.type,
        state=seen(job, now),
        attempt=job.attempt,
        cancel_requested=job.state is JobState.CANCELLING,
        suspended=job.suspended,
        reason=job.cancel_reason or job.reason,
        created_at=job.created_at,
        updated_at=job.updated_at,
        scheduled_for=None if job.waiting_for_dependencies else job.eligible_at,
        started_at=job.started_at,
        completed_at=job.finalized_at,
        priority=job.priority,
        tags=tags.to_map(job.tags),
        correlation_id=job.correlation_id,
        **fields,
    )


def _where_given(job: Job) -> dict[str, Any]:
    """What is left out of an answer where it is empty."""
    return {
        "traceparent": job.traceparent,
        "callback_url": job.callback_url,
        "max_attempts": job.max_attempts,
        "timeout": None if job.timeout_s is None else iso_text(timedelta(seconds=job.timeout_s)),
        "worker": job.worker_name or job.assignee_id,
        "resource": job.resource.name if job.resource else None,
    }


def job_result(job: Job) -> schemas.JobResult | None:
    """How the job ended; None while it has not, or when it was cancelled without a word."""
    if not is_terminal(job.state):
        return None
    fields: dict[str, Any] = {}
    if job.state is JobState.COMPLETED:
        fields = {
            "status": "SUCCESS",
            **_content("output", job.result or b"", job.result_content_type),
        }
    elif job.error is not None:
        fields = {"status": "FAILURE", "error": _error(job.error)}
    else:
        return None
    return schemas.JobResult(**fields, duration_ms=_duration_ms(job), attempt=job.attempt)


def _content(name: str, raw: bytes, content_type: str) -> dict[str, Any]:
    """As JSON where it is that, else as base64, under a name that says so."""
    if content_type == documents.JSON_TYPE:
        try:
            return {name: documents.decode(raw)}
        except ValueError:
            pass  # Bytes that only claim to be JSON still come out, as bytes.
    return {f"{name}_base64": base64.b64encode(raw).decode("ascii")}


def _error(error: ErrorInfo) -> schemas.ErrorInfo:
    fields = {"stack_trace": error.stack_trace} if error.stack_trace else {}
    return schemas.ErrorInfo(
        category=error.category, code=error.code, message=error.message, **fields
    )


def _duration_ms(job: Job) -> int | None:
    if job.assigned_at is None or job.finalized_at is None:
        return None
    return milliseconds(job.assigned_at, job.finalized_at)


def milliseconds(since: datetime, until: datetime) -> int:
    """From one to the other."""
    return max(0, (until - since) // timedelta(milliseconds=1))
